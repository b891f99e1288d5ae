use super::*;
use std::f64::consts::PI;

fn number(expression: &str) -> f64 {
    match parse(expression).unwrap() {
        Value::Number(number) => number,
        value => panic!("{expression} is {}", value.describe()),
    }
}

#[test]
fn arithmetic_is_pythons() {
    for (expression, expected) in [
        ("100.0", 100.0),
        (" 1e-3 ", 1e-3),
        (".5E+2", 50.0),
        ("5.", 5.0),
        ("1_000", 1000.0),
        ("2*np.pi", 2.0 * PI),
        ("-np.pi/2", -PI / 2.0),
        ("-2**2", -4.0),
        ("2**-1", 0.5),
        ("2**3**2", 512.0),
        ("1 - 2 - 3", -4.0),
        ("8 / 2 / 2 * 3", 6.0),
        ("(1 + 2) * +3", 9.0),
        ("-numpy.inf", f64::NEG_INFINITY),
    ] {
        assert_eq!(number(expression), expected, "{expression}");
    }
}

#[test]
fn calls_nest_and_keep_their_arguments() {
    let expression = r#"bilby.gw.prior.AlignedSpin(Uniform(0, 0.9,), name="chi_1", unit=None, latex_label=r'$\chi$')"#;
    let Value::Call(call) = parse(expression).unwrap() else {
        panic!("no call")
    };
    assert_eq!(
        (call.module.as_str(), call.class.as_str()),
        ("bilby.gw.prior", "AlignedSpin")
    );
    let Value::Call(nested) = &call.positional[0] else {
        panic!("no nested call")
    };
    assert_eq!((nested.module.as_str(), nested.class.as_str()), ("", "Uniform"));
    assert_eq!(nested.positional, [Value::Number(0.0), Value::Number(0.9)]);
    let keywords = [
        ("name", Value::Text("chi_1".into())),
        ("unit", Value::None),
        ("latex_label", Value::Text(r"$\chi$".into())),
    ];
    assert_eq!(call.keywords, keywords.map(|(name, value)| (name.to_string(), value)));
    assert_eq!(
        parse("[1, 2*3, True]").unwrap(),
        Value::List(vec![Value::Number(1.0), Value::Number(6.0), Value::Bool(true)])
    );
}

#[test]
fn errors_name_the_place() {
    for (expression, message) in [
        ("Uniform(0, 1", "expected ')' at character 13, but the expression ends"),
        ("Uniform(0 1)", "expected ')' at character 11, but found '1'"),
        (
            "Uniform(minimum=0, 1)",
            "expected keyword=value at character 20, but found '1'",
        ),
        (
            "Uniform(0, 1) x",
            "expected the end of the expression at character 15, but found 'x'",
        ),
        ("", "expected a value at character 1, but the expression ends"),
        ("1e", "'1e' is not a number"),
        ("'abc", "the string that begins at character 1 does not end"),
        ("2 * None", "cannot compute 2 * None"),
        (
            "foo",
            "'foo' is neither a constant (np.pi, np.e, np.inf, None, True, False) nor a call",
        ),
    ] {
        assert_eq!(parse(expression).unwrap_err(), message, "{expression}");
    }
    assert_eq!(
        parse(&"(".repeat(100_000)).unwrap_err(),
        "the expression is nested too deeply"
    );
    assert!(parse(&"F(".repeat(100_000)).is_err());
    assert!(parse(&"[".repeat(100_000)).is_err());
}
