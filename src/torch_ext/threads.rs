//! Threads within one operation of libtorch.

extern "C" {
    fn dingo_limit_thread(threads: i32) -> i32;
}

/// Lets the libtorch operations that the calling thread starts use `threads` threads, and leaves every other thread as it
/// is (`tch::set_num_threads` would change the default of threads that come later as well). Returns the number libtorch
/// will use: 1 or more, or `None` if it could not be asked.
pub fn limit_this_thread(threads: usize) -> Option<usize> {
    let threads = i32::try_from(threads).unwrap_or(i32::MAX).max(1);
    // SAFETY: the function only changes settings of the calling thread.
    usize::try_from(unsafe { dingo_limit_thread(threads) }).ok()
}

#[cfg(test)]
mod tests {
    use super::limit_this_thread;

    #[test]
    fn other_threads_keep_their_setting() {
        std::thread::spawn(|| {
            assert_eq!(limit_this_thread(3), Some(3));
            assert_eq!(tch::get_num_threads(), 3);
            let limited = std::thread::spawn(|| limit_this_thread(1)).join().expect("no panic");
            assert_eq!(limited, Some(1));
            assert_eq!(tch::get_num_threads(), 3);
            let later = std::thread::spawn(tch::get_num_threads).join().expect("no panic");
            assert_ne!(later, 0);
        })
        .join()
        .expect("no panic");
    }
}
