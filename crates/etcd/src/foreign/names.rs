//! Names of etcd-backup-restore's objects, and where its two layouts keep them.

use std::fs;
use std::path::{Path, PathBuf};

use super::ForeignError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackupKind {
    Full,
    Delta,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compression {
    None,
    Gzip,
    Zlib,
    Lzw,
}

/// `Kind-<start>-<last>-<unix seconds>[.gz|.zlib|.Z][.final]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupName {
    pub kind: BackupKind,
    /// First revision of a delta.
    pub start: i64,
    /// Last revision. A full snapshot may hold more than its name admits.
    pub last: i64,
    pub created: i64,
    pub compression: Compression,
}

impl BackupName {
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.strip_suffix(".final").unwrap_or(name);
        let (stem, compression) = [(".gz", Compression::Gzip), (".zlib", Compression::Zlib), (".Z", Compression::Lzw)]
            .into_iter()
            .find_map(|(suffix, compression)| Some((name.strip_suffix(suffix)?, compression)))
            .unwrap_or((name, Compression::None));
        let mut parts = stem.split('-');
        let kind = match parts.next()? {
            "Full" => BackupKind::Full,
            "Incr" => BackupKind::Delta,
            _ => return None,
        };
        let mut number = |digits: usize| {
            let text = parts.next()?;
            let strict = text.len() >= digits && text.bytes().all(|byte| byte.is_ascii_digit());
            if strict { text.parse::<i64>().ok() } else { None }
        };
        let (start, last, created) = (number(8)?, number(8)?, number(1)?);
        let ordered = parts.next().is_none() && start <= last;
        ordered.then_some(Self { kind, start, last, created, compression })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    pub path: PathBuf,
    pub name: BackupName,
}

/// All backup files below `dir`, ordered by start, last and creation.
///
/// `dir` may be the directory of the files itself, a store's root (`v2/`, `v1/Backup-*/`) or `v1`. A file that merely
/// starts like a delta is refused rather than ignored: it could be the newest one, and nobody would miss it.
pub(super) fn list(dir: &Path) -> Result<Vec<BackupFile>, ForeignError> {
    let mut files = Vec::new();
    collect(dir, true, &mut files)?;
    files.sort_by_key(|file| (file.name.start, file.name.last, file.name.created));
    Ok(files)
}

fn collect(dir: &Path, descend: bool, files: &mut Vec<BackupFile>) -> Result<(), ForeignError> {
    let at_dir = |source| ForeignError::Io { path: dir.to_owned(), source };
    for entry in fs::read_dir(dir).map_err(at_dir)? {
        let entry = entry.map_err(at_dir)?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if path.is_dir() {
            let generation = name == "v1" || name == "v2";
            if generation && descend || name.starts_with("Backup-") {
                collect(&path, false, files)?;
            }
        } else if let Some(name) = BackupName::parse(&name) {
            files.push(BackupFile { path, name });
        } else if name.starts_with("Incr-") {
            return Err(ForeignError::Name { path });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_whole_or_not_at_all() {
        let name = BackupName::parse("Incr-00000101-00000200-1518427675.gz.final").unwrap();
        assert_eq!((name.kind, name.start, name.last, name.created), (BackupKind::Delta, 101, 200, 1_518_427_675));
        assert_eq!(name.compression, Compression::Gzip);
        assert_eq!(BackupName::parse("Full-00000000-1234567890-1.Z").unwrap().compression, Compression::Lzw);
        for bad in [
            "Incr-101-200-1",
            "Incr-00000101-00000200",
            "Incr-00000101-00000200-1-2",
            "Incr-00000101-00000200-1.gz.tmp",
            "Incr-00000201-00000200-1",
            "Incr-+0000101-00000200-1",
            "Incr-00000101-99999999999999999999-1",
            "incr-00000101-00000200-1",
            "Incr-00000101-00000200-1.bz2",
        ] {
            assert_eq!(BackupName::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn both_layouts_are_found_and_sorted_by_number_not_by_text() {
        let dir = tempfile::tempdir().unwrap();
        for name in
            ["v1/Backup-15/Incr-00000002-00000009-1", "v2/Incr-100000000-100000001-3.gz", "v2/Incr-00000010-99999999-2"]
        {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        fs::write(dir.path().join("README"), b"").unwrap();
        let starts: Vec<i64> = list(dir.path()).unwrap().iter().map(|file| file.name.start).collect();
        assert_eq!(starts, [2, 10, 100_000_000]);
        fs::write(dir.path().join("v2/Incr-100000002-100000009-3.gz.part"), b"").unwrap();
        assert!(matches!(list(dir.path()), Err(ForeignError::Name { .. })));
    }
}
