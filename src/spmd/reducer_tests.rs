use super::*;
use tch::{Device, Kind};

fn parameter(shape: &[i64]) -> Tensor {
    Tensor::ones(shape, (Kind::Float, Device::Cpu)).set_requires_grad(true)
}

fn alone() -> World {
    World::alone(|_| 1)
}

#[test]
fn gradients_accumulate_in_the_buckets_and_scalars_ride_along() {
    let parameters = [parameter(&[2, 3]), parameter(&[5])];
    let mut reducer = GradientReducer::new(&alone(), &parameters, 1 << 20).unwrap();
    for step in 0..2 {
        reducer.zero().unwrap();
        for last in [false, true] {
            let loss = (&parameters[0] * 2.0).sum(Kind::Float) + (&parameters[1] * 3.0).sum(Kind::Float);
            reducer.prepare(last).unwrap();
            reducer.set_scalars(&[7.0, f64::from(step)]).unwrap();
            loss.backward();
        }
        let reduced = reducer.finish().unwrap();
        assert_eq!(
            Vec::<f32>::try_from(reduced.scalars.narrow(0, 0, 3)).unwrap(),
            [7.0, step as f32, 0.0]
        );
        assert_eq!(reduced.collectives, 0);
        assert_eq!(Vec::<f32>::try_from(parameters[0].grad().view(-1)).unwrap(), [4.0; 6]);
        assert_eq!(Vec::<f32>::try_from(parameters[1].grad()).unwrap(), [6.0; 5]);
        let sums: f64 = reducer
            .flat_gradients()
            .iter()
            .map(|flat| flat.sum(Kind::Double).double_value(&[]))
            .sum();
        assert_eq!(sums, 4.0 * 6.0 + 6.0 * 5.0);
    }
    drop(reducer);
    assert!(!parameters[0].grad().defined());
}

#[test]
fn wrong_use_is_an_error() {
    let world = alone();
    let parameters = [parameter(&[2])];
    let message = |result: Result<()>| result.unwrap_err().to_string();
    assert!(message(GradientReducer::new(&world, &[], 1).map(drop)).contains("no parameter"));
    let frozen = Tensor::ones([2], (Kind::Float, Device::Cpu));
    assert!(message(GradientReducer::new(&world, &[parameter(&[1]), frozen], 1).map(drop)).contains("parameter 1"));
    let double = Tensor::ones([2], (Kind::Double, Device::Cpu)).set_requires_grad(true);
    assert!(message(GradientReducer::new(&world, &[parameter(&[1]), double], 1).map(drop)).contains("alike"));

    let mut reducer = GradientReducer::new(&world, &parameters, 1).unwrap();
    assert!(message(reducer.finish().map(drop)).contains("prepare(true)"));
    assert!(message(reducer.set_scalars(&[0.0; SCALAR_SLOTS + 1])).contains("room for 8"));
    clear_grad(&parameters[0]).unwrap();
    assert!(message(reducer.prepare(true)).contains("replaced"));
}
