//! Links the C++ side in `src/torch_ext` against the libtorch that torch-sys found, and gives every
//! binary an rpath to it, so that the program starts without LD_LIBRARY_PATH, under mpirun too.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=src/torch_ext");
    println!("cargo:rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    let lib = PathBuf::from(std::env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys names libtorch's library folder"));
    let include = lib.parent().expect("lib has a parent").join("include");

    let sources: Vec<PathBuf> = cpp_sources(Path::new("src/torch_ext"));
    if !sources.is_empty() {
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            .include(&include)
            .include(include.join("torch/csrc/api/include"))
            .include("src/torch_ext")
            .flag("-Wno-unused-parameter")
            // Kernels round alike for every instruction set, and their loops of square roots vectorize.
            .flag("-ffp-contract=off")
            .flag("-fno-math-errno")
            .flag("-fno-trapping-math")
            // Without it at::parallel_for would not be parallel.
            .flag("-fopenmp")
            .opt_level(3)
            .files(&sources)
            .compile("dingo_torch_ext");
    }

    // The wrapper that rsmpi's own build uses, so that both see the same mpi.h.
    println!("cargo:rerun-if-changed=src/spmd/in_place.c");
    println!("cargo:rerun-if-env-changed=MPICC");
    cc::Build::new()
        .compiler(std::env::var("MPICC").unwrap_or_else(|_| "mpicc".into()))
        .file("src/spmd/in_place.c")
        .compile("dingo_mpi_in_place");

    // libtorch brings its own; the soname is the same, so that the process has one.
    println!("cargo:rustc-link-arg=-lgomp");
    // The wheel's libtorch finds its own siblings (NVIDIA's libraries) through their $ORIGIN rpaths.
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
}

/// Every `.cpp` file below `folder`.
fn cpp_sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).map(|r| r.flatten().collect::<Vec<_>>());
    for entry in entries.unwrap_or_default() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(cpp_sources(&path));
        } else if path.extension().is_some_and(|e| e == "cpp") {
            found.push(path);
        }
    }
    found.sort();
    found
}
