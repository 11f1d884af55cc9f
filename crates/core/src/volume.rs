//! Room on a member's volume: the reserve that lets a full one be repaired, and when somebody should be told.
//!
//! etcd ends when it cannot write, and then cannot start either: it wants the next segment of its log first. So a file
//! beside the data holds some room back. It is removed when etcd is about to start and there is no room, and made again when
//! there is plenty. What decides is the room that there would be without the file, or with it, so that neither making nor
//! removing it changes the answer.

use quorate_api::defaults::{LOG_SEGMENT, RESERVE};
use quorate_api::member::{VolumeReport, VolumeState};

/// What etcd needs to start: the next segment of its log, and what its database grows by at a time.
const TO_START: i64 = LOG_SEGMENT + (16 << 20);
/// What there has to be besides the reserve before it is made. More than what it is removed at, so that it does not come and
/// go.
const TO_MAKE: i64 = 2 * TO_START;
/// A volume of which this many percent are used is filling,
const FILLING: i64 = 80;
/// and it no longer is below this.
const AMPLE: i64 = 75;
/// The reserve takes at most this part of a volume.
const LARGEST_PART: i64 = 4;

/// The room on a volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// All of it.
    pub size: i64,
    /// What etcd can still write.
    pub free: i64,
    /// What the reserve holds.
    pub reserve: i64,
    /// Whether a file can hold room back. In memory it would take what it is to save.
    pub reservable: bool,
}

/// What becomes of the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    Keep,
    Make { bytes: i64 },
    Release,
}

/// What etcd does on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It runs.
    Running,
    /// It is about to start on data that is the member's own, or on none.
    Starting,
    /// It does not start. The volume may be somebody else's, or unreadable: nothing on it is touched.
    None,
}

impl Room {
    /// How large the reserve is on a volume of this size: whole segments, because less than one helps nobody.
    fn wanted(&self) -> i64 {
        if !self.reservable {
            return 0;
        }
        (self.size / LARGEST_PART).min(RESERVE) / LOG_SEGMENT * LOG_SEGMENT
    }

    /// What could be written if the reserve were released.
    fn at_most(&self) -> i64 {
        self.free.saturating_add(self.reserve)
    }

    /// What can be written while the reserve is held back.
    fn beside_reserve(&self) -> i64 {
        self.at_most().saturating_sub(self.wanted())
    }

    fn used_percent(&self) -> i64 {
        // Hundredths first: the size of a volume times a hundred is still far from the largest number.
        self.size.saturating_sub(self.at_most()).saturating_mul(100) / self.size.max(1)
    }
}

/// Whether to make, keep or release the reserve.
pub fn reserve(room: &Room, used: Use) -> Reserve {
    let wanted = room.wanted();
    match used {
        Use::Starting if room.free < TO_START && room.reserve > 0 => Reserve::Release,
        Use::Starting | Use::Running if room.reserve < wanted && room.beside_reserve() >= TO_MAKE => {
            Reserve::Make { bytes: wanted }
        }
        Use::Starting | Use::Running | Use::None => Reserve::Keep,
    }
}

/// What to report, given what was reported before. It changes only when it means something else.
pub fn report(room: &Room, before: Option<VolumeState>) -> VolumeReport {
    let was_full = before == Some(VolumeState::Full);
    let was_filling = matches!(before, Some(VolumeState::Filling | VolumeState::Full));
    let full = room.at_most() < if was_full { TO_MAKE } else { TO_START };
    let used = room.used_percent() >= if was_filling { AMPLE } else { FILLING };
    let has_reserve = room.wanted() > 0;
    let without_reserve = has_reserve && room.beside_reserve() < if was_filling { TO_MAKE } else { TO_START };
    let (state, reason) = match () {
        () if full => (VolumeState::Full, Some("there is no room for etcd to start, even without the reserve")),
        () if has_reserve && room.reserve == 0 && (used || without_reserve) => {
            (VolumeState::Filling, Some("there is no reserve: it was released to let etcd start, or never had room"))
        }
        () if used || without_reserve => (VolumeState::Filling, Some("most of the volume is used")),
        () => (VolumeState::Ample, None),
    };
    VolumeReport { state, reason: reason.map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: i64 = 1 << 20;
    const GIBIBYTE: i64 = 1 << 30;

    fn room(size: i64, free: i64, reserve: i64) -> Room {
        Room { size, free, reserve, reservable: true }
    }

    /// What a volume holds after the decision was followed.
    fn after(room: Room, decided: Reserve) -> Room {
        match decided {
            Reserve::Keep => room,
            Reserve::Make { bytes } => Room { free: room.at_most() - bytes, reserve: bytes, ..room },
            Reserve::Release => Room { free: room.at_most(), reserve: 0, ..room },
        }
    }

    fn every_room() -> impl Iterator<Item = Room> {
        let sizes = [0, 100, 256, 300, 512, 640, 1024, 20 * 1024].map(|size| size * MEBIBYTE);
        sizes.into_iter().flat_map(|size| {
            let frees = (0..=64).map(move |part| size / 64 * part);
            let reserves = [0, LOG_SEGMENT, RESERVE].into_iter();
            frees.flat_map(move |free| reserves.clone().map(move |reserve| room(size, free, reserve)))
        })
    }

    #[test]
    fn a_reserve_is_made_on_a_volume_with_room_and_released_when_etcd_has_none_to_start() {
        let plenty = room(20 * GIBIBYTE, 19 * GIBIBYTE, 0);
        assert_eq!(reserve(&plenty, Use::Running), Reserve::Make { bytes: RESERVE });
        assert_eq!(reserve(&after(plenty, Reserve::Make { bytes: RESERVE }), Use::Running), Reserve::Keep);
        let full = room(20 * GIBIBYTE, 0, RESERVE);
        assert_eq!(reserve(&full, Use::Starting), Reserve::Release);
        assert_eq!(reserve(&full, Use::Running), Reserve::Keep, "a running etcd would only fill it too");
    }

    #[test]
    fn nothing_is_touched_on_a_volume_that_etcd_does_not_start_on() {
        for room in every_room() {
            assert_eq!(reserve(&room, Use::None), Reserve::Keep, "{room:?}");
        }
    }

    #[test]
    fn making_the_reserve_never_fills_the_volume_and_it_does_not_come_and_go() {
        for room in every_room() {
            for used in [Use::Running, Use::Starting] {
                let decided = reserve(&room, used);
                let then = after(room, decided);
                if let Reserve::Make { .. } = decided {
                    assert!(then.free >= TO_MAKE, "{room:?}");
                }
                for next in [Use::Running, Use::Starting].into_iter().filter(|_| decided != Reserve::Keep) {
                    assert_eq!(reserve(&then, next), Reserve::Keep, "{room:?} {used:?} {decided:?} {next:?}");
                }
            }
        }
    }

    #[test]
    fn a_small_volume_gets_less_or_none_and_memory_gets_none() {
        let empty = |size: i64| reserve(&room(size, size, 0), Use::Running);
        assert_eq!(empty(512 * MEBIBYTE), Reserve::Make { bytes: RESERVE });
        assert_eq!(empty(300 * MEBIBYTE), Reserve::Make { bytes: LOG_SEGMENT });
        assert_eq!(empty(200 * MEBIBYTE), Reserve::Keep);
        let in_memory = Room { reservable: false, ..room(GIBIBYTE, GIBIBYTE, 0) };
        assert_eq!(reserve(&in_memory, Use::Running), Reserve::Keep);
    }

    #[test]
    fn the_reserve_does_not_count_as_used_and_its_release_frees_nobody_of_the_warning() {
        for room in every_room().filter(|room| room.reserve > 0) {
            for before in [None, Some(VolumeState::Filling), Some(VolumeState::Full)] {
                let released = after(room, Reserve::Release);
                assert_eq!(report(&room, before).state, report(&released, before).state, "{room:?} {before:?}");
            }
        }
    }

    #[test]
    fn a_volume_is_filling_from_eighty_percent_and_ample_again_below_seventy_five() {
        let used = |percent: i64| room(10 * GIBIBYTE, 10 * GIBIBYTE / 100 * (100 - percent) - RESERVE, RESERVE);
        let state = |percent: i64, before: VolumeState| report(&used(percent), Some(before)).state;
        assert_eq!(state(79, VolumeState::Ample), VolumeState::Ample);
        assert_eq!(state(81, VolumeState::Ample), VolumeState::Filling);
        assert_eq!(state(76, VolumeState::Filling), VolumeState::Filling);
        assert_eq!(state(74, VolumeState::Filling), VolumeState::Ample);
    }

    #[test]
    fn a_volume_is_full_when_releasing_the_reserve_does_not_let_etcd_start() {
        let state = |free: i64, reserve: i64| report(&room(GIBIBYTE, free, reserve), None).state;
        assert_eq!(state(0, RESERVE), VolumeState::Filling);
        assert_eq!(state(TO_START, 0), VolumeState::Filling);
        assert_eq!(state(TO_START - 1, 0), VolumeState::Full);
        let again = report(&room(GIBIBYTE, TO_START, 0), Some(VolumeState::Full)).state;
        assert_eq!(again, VolumeState::Full, "a little more room is not yet an end of it");
    }
}
