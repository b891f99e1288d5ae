//! Links the C++ side in `src/torch_ext` against the libtorch that torch-sys found, and gives every
//! binary an rpath to it, so that the program starts without LD_LIBRARY_PATH, under mpirun too.
//! What needs CUDA (`src/torch_ext/cuda`) is left out where libtorch or its headers have none.

use std::path::{Path, PathBuf};

/// Sources that need CUDA's headers.
const CUDA_SOURCES: &str = "src/torch_ext/cuda";

fn main() {
    println!("cargo:rerun-if-changed=src/torch_ext");
    println!("cargo:rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    let lib = PathBuf::from(std::env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys names libtorch's library folder"));
    let include = lib.parent().expect("lib has a parent").join("include");
    let cuda = offer_cuda(&lib);

    let mut sources = cpp_sources(Path::new("src/torch_ext"));
    if cuda.is_none() {
        sources.retain(|source| !source.starts_with(CUDA_SOURCES));
    }
    if !sources.is_empty() {
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            .include(&include)
            .include(include.join("torch/csrc/api/include"))
            .include("src/torch_ext")
            .includes(cuda.iter().flat_map(|cuda| &cuda.includes))
            .flag("-Wno-unused-parameter")
            // Kernels round alike for every instruction set, and their loops of square roots vectorize.
            .flag("-ffp-contract=off")
            .flag("-fno-math-errno")
            .flag("-fno-trapping-math")
            // Of libtorch's CUDA headers, not of ours.
            .flag_if_supported("-Wno-interference-size")
            // Without it at::parallel_for would not be parallel.
            .flag("-fopenmp")
            .opt_level(3)
            .files(&sources)
            .compile("dingo_torch_ext");
    }
    if let Some(cuda) = &cuda {
        link_cuda(cuda);
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

/// What the CUDA side is compiled with and linked to.
struct Cuda {
    includes: Vec<PathBuf>,
    /// CUDA's runtime and NCCL: the very files that libtorch loads too.
    libraries: Vec<PathBuf>,
}

/// Finds CUDA, and tells cargo: `cfg(dingo_cuda)` where it is there, else why it is not (for the program's own message).
fn offer_cuda(lib: &Path) -> Option<Cuda> {
    println!("cargo:rustc-check-cfg=cfg(dingo_cuda)");
    for variable in ["DINGO_SPMD_CUDA", "CUDA_HOME", "NCCL_HOME"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let found = match std::env::var("DINGO_SPMD_CUDA").as_deref() {
        Ok("off") => Err("it was built with DINGO_SPMD_CUDA=off".to_owned()),
        _ => find_cuda(lib),
    };
    match found {
        Ok(cuda) => {
            println!("cargo:rustc-cfg=dingo_cuda");
            Some(cuda)
        }
        Err(why) => {
            println!("cargo:warning=built without CUDA: {why}");
            println!("cargo:rustc-env=DINGO_WITHOUT_CUDA={why}");
            None
        }
    }
}

/// The headers lie in wheels beside libtorch's own (`nvidia/cu13`, `nvidia/nccl`), or where CUDA_HOME and NCCL_HOME say.
fn find_cuda(lib: &Path) -> Result<Cuda, String> {
    if !lib.join("libtorch_cuda.so").exists() {
        return Err(format!("the libtorch in {} has none", lib.display()));
    }
    let wheels = lib.join("../../nvidia");
    let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);

    let homes: Vec<PathBuf> = [wheels.join("cu13")]
        .into_iter()
        .chain(named("CUDA_HOME"))
        .chain([PathBuf::from("/usr/local/cuda")])
        .collect();
    let needed = [
        "cuda_runtime_api.h",
        "crt/host_defines.h",
        "cusparse.h",
        "cublas_v2.h",
        "cusolverDn.h",
    ];
    let has_headers = |home: &&PathBuf| needed.iter().all(|header| home.join("include").join(header).exists());
    let home = homes.iter().find(has_headers).ok_or_else(|| {
        format!(
            "no CUDA headers ({}) in {} or CUDA_HOME",
            needed.join(", "),
            homes[0].join("include").display()
        )
    })?;
    let mut includes = vec![home.join("include")];
    // libcu++, a folder deeper in CUDA 13.
    includes.extend(Some(home.join("include/cccl")).filter(|cccl| cccl.exists()));
    if !includes.iter().any(|folder| folder.join("nv/target").exists()) {
        return Err(format!("no nv/target (of CUDA's cccl) in {}", includes[0].display()));
    }

    let nccl_homes: Vec<PathBuf> = [wheels.join("nccl")]
        .into_iter()
        .chain(named("NCCL_HOME"))
        .chain([home.clone()])
        .collect();
    let nccl = nccl_homes.iter().find(|home| home.join("include/nccl.h").exists());
    let nccl = nccl.ok_or_else(|| format!("no nccl.h in {} or NCCL_HOME", nccl_homes[0].join("include").display()))?;
    includes.push(nccl.join("include"));
    Ok(Cuda {
        includes,
        libraries: vec![
            library(home, &["libcudart.so.13", "libcudart.so.12"])?,
            library(nccl, &["libnccl.so.2"])?,
        ],
    })
}

/// The first of these names in a home's library folders.
fn library(home: &Path, names: &[&str]) -> Result<PathBuf, String> {
    let paths = names
        .iter()
        .flat_map(|name| ["lib", "lib64", "targets/x86_64-linux/lib"].map(|folder| home.join(folder).join(name)));
    let found = paths.into_iter().find(|path| path.exists());
    let found = found.ok_or_else(|| format!("no {} in {}", names[0], home.display()))?;
    found
        .canonicalize()
        .map_err(|error| format!("{}: {error}", found.display()))
}

/// Links CUDA's runtime and NCCL by their paths, and makes them found at run time. The driver is not linked: libtorch loads
/// it when a GPU is asked for, so the program starts where there is none.
fn link_cuda(cuda: &Cuda) {
    println!("cargo:rustc-link-lib=torch_cuda");
    println!("cargo:rustc-link-lib=c10_cuda");
    for library in &cuda.libraries {
        let folder = library.parent().expect("a file has a folder");
        let name = library
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a library's name is ASCII");
        println!("cargo:rustc-link-search=native={}", folder.display());
        println!("cargo:rustc-link-lib=dylib:+verbatim={name}");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
    }
}
