//! What the operating system says of this process' memory.

use serde::Serialize;

/// In bytes; `None` where `/proc` does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Anonymous memory in use now: what is this process' own, without mapped files.
    pub anonymous: Option<u64>,
    /// The most that was ever resident, mapped files included.
    pub peak: Option<u64>,
}

impl Memory {
    pub fn now() -> Memory {
        std::fs::read_to_string("/proc/self/status").map_or_else(|_| Memory::default(), |text| Memory::parse(&text))
    }

    fn parse(status: &str) -> Memory {
        let bytes = |name: &str| -> Option<u64> {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kilobytes << 10)
        };
        Memory {
            anonymous: bytes("RssAnon"),
            peak: bytes("VmHWM"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_proc_says() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nRssAnon:\t      17 kB\n";
        let memory = Memory::parse(status);
        assert_eq!(memory.anonymous, Some(17 << 10));
        assert_eq!(memory.peak, Some(2048 << 10));
        let now = Memory::now();
        assert!(now.anonymous.is_some_and(|bytes| bytes > 0) && now.peak >= now.anonymous);
    }
}
