//! Which of a kernel's builds the processor can run.

/// An instruction set that kernels are built for. All give the same results, bit for bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub(super) enum Level {
    Baseline = 0,
    Avx2 = 1,
    Avx512 = 2,
}

impl Level {
    /// The widest that this processor has.
    pub fn detected() -> Level {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("fma") {
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl");
            if avx512 {
                return Level::Avx512;
            }
            if is_x86_feature_detected!("avx2") {
                return Level::Avx2;
            }
        }
        Level::Baseline
    }

    /// All that this processor has.
    #[cfg(test)]
    pub fn available() -> Vec<Level> {
        let all = [Level::Baseline, Level::Avx2, Level::Avx512];
        all.into_iter().filter(|&level| level <= Level::detected()).collect()
    }
}
