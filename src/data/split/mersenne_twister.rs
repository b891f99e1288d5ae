//! The Mersenne Twister MT19937 (Matsumoto and Nishimura, ACM TOMACS 8, 1998): PyTorch's generator on the CPU.

const STATE_SIZE: usize = 624;
const SHIFT_SIZE: usize = 397;

/// A generator whose 32-bit outputs are those of the reference implementation, and of `torch.Generator`.
#[derive(Debug, Clone)]
pub(crate) struct MersenneTwister {
    state: Vec<u32>,
    position: usize,
}

impl MersenneTwister {
    pub(crate) fn new(seed: u32) -> Self {
        let mut state = Vec::with_capacity(STATE_SIZE);
        state.push(seed);
        for i in 1..STATE_SIZE as u32 {
            let previous = state[i as usize - 1];
            state.push(
                1_812_433_253u32
                    .wrapping_mul(previous ^ (previous >> 30))
                    .wrapping_add(i),
            );
        }
        Self {
            state,
            position: STATE_SIZE,
        }
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        if self.position == STATE_SIZE {
            self.refill();
        }
        let mut word = self.state[self.position];
        self.position += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// Two outputs, the first in the upper half, as PyTorch's `random64`.
    pub(crate) fn next_u64(&mut self) -> u64 {
        let upper = u64::from(self.next_u32());
        upper << 32 | u64::from(self.next_u32())
    }

    /// Uniform in [0, 1), with 53 random bits.
    pub(crate) fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn refill(&mut self) {
        for i in 0..STATE_SIZE {
            let joined = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % STATE_SIZE] & 0x7fff_ffff);
            let twist = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + SHIFT_SIZE) % STATE_SIZE] ^ (joined >> 1) ^ twist;
        }
        self.position = 0;
    }
}
