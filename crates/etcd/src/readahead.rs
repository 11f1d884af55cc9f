//! Asking the kernel to fetch what a forward reader needs next.
//!
//! Its own guess is a window of 128 KiB, too small to keep a disk busy: cold walks are two to four times faster with
//! this.

use std::fs::File;
use std::num::NonZeroU64;

use rustix::fs::{Advice, fadvise};

const DISTANCE: u64 = 8 << 20;

#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// File offset up to which was asked already.
    asked: u64,
}

impl ReadAhead {
    /// Tells that everything before `offset` was read.
    pub(crate) fn passed(&mut self, file: &File, offset: u64) {
        if offset + DISTANCE < self.asked {
            // The reader jumped back.
            self.asked = 0;
        }
        if offset + DISTANCE / 2 > self.asked {
            let from = self.asked.max(offset);
            self.asked = offset + DISTANCE;
            // Advice only: without it the reader is slower and no less right.
            let _ = fadvise(file, from, NonZeroU64::new(self.asked - from), Advice::WillNeed);
        }
    }
}
