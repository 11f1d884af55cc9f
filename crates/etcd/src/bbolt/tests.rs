//! What is loaded is what is read back, at any size, page size and order of appends; and damage is never silent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use proptest::prelude::*;

use super::check::check_own;
use super::*;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

fn create(path: &Path) -> File {
    File::options().create(true).truncate(true).read(true).write(true).open(path).unwrap()
}

fn load(path: &Path, page_size: usize, buckets: &[(&str, &Entries)]) {
    let mut output = Output::new(create(path), page_size, 2).unwrap();
    let mut root = TreeWriter::new(page_size);
    for (name, entries) in buckets {
        let mut tree = TreeWriter::new(page_size);
        for (key, value) in *entries {
            tree.push(&mut output, key, value).unwrap();
        }
        let tree = tree.finish(&mut output).unwrap();
        root.push_bucket(&mut output, name.as_bytes(), &tree).unwrap();
    }
    let root = root.finish_as_pages(&mut output).unwrap();
    let freelist = output.empty_freelist().unwrap();
    output.finish(root, freelist, 7).unwrap();
}

fn append(path: &Path, name: &str, entries: &Entries) {
    let db = Db::open(path).unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut output = Output::new(file, db.page_size(), db.meta().high_water).unwrap();
    let mut root = TreeWriter::new(db.page_size());
    for bucket in db.buckets().unwrap() {
        if bucket.name != name.as_bytes() {
            root.push_bucket(&mut output, &bucket.name, &bucket.tree()).unwrap();
            continue;
        }
        let mut tree = TreeWriter::resume(&db, &bucket).unwrap();
        for (key, value) in entries {
            tree.push(&mut output, key, value).unwrap();
        }
        let tree = tree.finish(&mut output).unwrap();
        root.push_bucket(&mut output, &bucket.name, &tree).unwrap();
    }
    let root = root.finish_as_pages(&mut output).unwrap();
    output.finish(root, NO_FREELIST, db.meta().txid + 1).unwrap();
}

fn read(path: &Path, name: &str) -> Result<Entries, Error> {
    let db = Db::open(path)?;
    let bucket = db.bucket(name.as_bytes())?.unwrap();
    let mut entries = Entries::new();
    let flow = Walk::new(&db).bucket(&bucket, |key, value| {
        entries.insert(key.to_vec(), value.to_vec());
        Ok::<_, Error>(ControlFlow::Continue(()))
    })?;
    assert!(flow.is_continue());
    assert_eq!(db.last_key(&bucket)?.as_ref(), entries.keys().next_back());
    Ok(entries)
}

fn findings(path: &Path) -> Vec<String> {
    let checked = check(&Db::open(path).unwrap(), |_, _, _| {}).unwrap();
    checked.findings.iter().map(|finding| finding.error.to_string()).collect()
}

fn numbered(range: std::ops::Range<u64>, size: usize) -> Entries {
    range.map(|n| (n.to_be_bytes().to_vec(), vec![n.to_le_bytes()[0]; size])).collect()
}

fn arbitrary_entries() -> impl Strategy<Value = Entries> {
    let value = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..40),
        2 => (100_usize..1500).prop_map(|size| vec![7; size]),
        1 => (4000_usize..70_000).prop_map(|size| vec![9; size]),
    ];
    let key =
        prop_oneof![9 => prop::collection::vec(any::<u8>(), 1..24), 1 => (1_usize..3000).prop_map(|n| vec![3; n])];
    prop::collection::btree_map(key, value, 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_loaded_file_is_sound_and_reads_back(
        entries in arbitrary_entries(), small in arbitrary_entries(), shift in 10_u32..=16,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        load(&path, 1 << shift, &[("key", &entries), ("lease", &small), ("meta", &Entries::new())]);
        let checked = check_own(&Db::open(&path).unwrap()).unwrap();
        prop_assert!(checked.findings.is_empty(), "{:?}", checked.findings);
        prop_assert_eq!(checked.entries, (entries.len() + small.len()) as u64);
        prop_assert_eq!(&read(&path, "key").unwrap(), &entries);
        prop_assert_eq!(&read(&path, "lease").unwrap(), &small);
    }

    #[test]
    fn appending_in_any_portions_equals_loading_at_once(
        entries in arbitrary_entries(), cuts in prop::collection::vec(0_usize..400, 1..4), shift in 10_u32..=13,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(entries.len())).collect();
        cuts.sort_unstable();
        cuts.push(entries.len());
        let slice = |from, to| entries.iter().skip(from).take(to - from)
            .map(|(k, v)| (k.clone(), v.clone())).collect::<Entries>();
        load(&path, 1 << shift, &[("alarm", &Entries::new()), ("key", &slice(0, cuts[0]))]);
        for pair in cuts.windows(2) {
            append(&path, "key", &slice(pair[0], pair[1]));
        }
        prop_assert_eq!(findings(&path), Vec::<String>::new());
        prop_assert_eq!(&read(&path, "key").unwrap(), &entries);
    }
}

#[test]
fn every_branch_has_two_children_whatever_the_number_of_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    // With 1 KiB pages a branch takes 42 such keys: this crosses from one to three levels and every remainder.
    for count in (1..400).chain([1763, 1764, 1765, 1766, 1806, 1807, 1808, 3529]) {
        load(&path, 1024, &[("key", &numbered(0..count, 900))]);
        let checked = check_own(&Db::open(&path).unwrap()).unwrap();
        assert!(checked.findings.is_empty(), "{count} leaves: {:?}", checked.findings);
    }
}

#[test]
fn keys_out_of_order_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut output = Output::new(create(&dir.path().join("db")), 4096, 2).unwrap();
    let mut tree = TreeWriter::new(4096);
    tree.push(&mut output, b"b", b"").unwrap();
    for key in [b"b", b"a"] {
        assert!(matches!(tree.push(&mut output, key, b""), Err(Error::NotAscending { .. })));
    }
    assert!(matches!(tree.push(&mut output, b"", b""), Err(Error::KeySize(0))));
}

#[test]
fn a_branch_with_one_child_is_found_although_bbolt_accepts_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    load(&path, 1024, &[("key", &numbered(0..3, 900))]);
    let db = Db::open(&path).unwrap();
    let BucketRoot::Page(root) = db.bucket(b"key").unwrap().unwrap().root else { panic!("inline") };
    File::options().write(true).open(&path).unwrap().write_all_at(&[1, 0], root * 1024 + 10).unwrap();
    assert!(findings(&path).iter().any(|finding| finding.contains("single child")), "{:?}", findings(&path));
}

#[test]
fn a_page_that_is_its_own_ancestor_ends_the_walk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    load(&path, 1024, &[("key", &numbered(0..100, 900))]);
    let db = Db::open(&path).unwrap();
    let BucketRoot::Page(root) = db.bucket(b"key").unwrap().unwrap().root else { panic!("inline") };
    for element in 0..2_u64 {
        let child = root * 1024 + 16 + element * 16 + 8;
        File::options().write(true).open(&path).unwrap().write_all_at(&root.to_le_bytes(), child).unwrap();
    }
    assert!(read(&path, "key").is_err());
    assert!(findings(&path).iter().any(|finding| finding.contains("more than one page run")));
}

#[test]
fn one_torn_meta_is_survived_and_two_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let entries = numbered(0..50, 300);
    for page_size in [1024_u64, 4096, 65536] {
        load(&path, usize::try_from(page_size).unwrap(), &[("key", &entries)]);
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[0xff], 40).unwrap();
        assert_eq!(read(&path, "key").unwrap(), entries);
        assert!(Db::open(&path).unwrap().metas()[0].is_err());
        file.write_all_at(&[0xff], page_size + 40).unwrap();
        assert!(matches!(Db::open(&path), Err(Error::NoMeta { .. })));
    }
}

#[test]
fn a_truncated_file_is_refused_at_any_length() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    load(&path, 4096, &[("key", &numbered(0..50, 300))]);
    let length = std::fs::metadata(&path).unwrap().len();
    for cut in (0..length).rev().step_by(97) {
        File::options().write(true).open(&path).unwrap().set_len(cut).unwrap();
        assert!(Db::open(&path).is_err(), "{cut} of {length} bytes");
    }
}

/// Every byte that is not inside a key's or value's data means something; flips there are found or change nothing.
#[test]
fn flipped_bytes_are_found_or_lie_in_values() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let entries = numbered(0..60, 200);
    load(&path, 1024, &[("key", &entries)]);
    let sound = std::fs::read(&path).unwrap();
    let mut found = 0;
    for at in 2048..sound.len() {
        let mut damaged = sound.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&path, &damaged).unwrap();
        let Ok(db) = Db::open(&path) else { continue };
        let checked = check(&db, |_, _, _| {}).unwrap();
        let renamed = db.bucket(b"key").is_ok_and(|bucket| bucket.is_none());
        if renamed || !checked.findings.is_empty() {
            found += 1;
        } else if let Ok(after) = read(&path, "key") {
            // Without checksums a changed value cannot be told; a lost or invented entry must be.
            assert_eq!(after.len(), entries.len(), "offset {at}");
        }
    }
    assert!(found > 1000, "{found}");
}

type Seen = (BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>, BTreeSet<String>);

/// What stretches of this many pages see together.
fn in_stretches(path: &Path, pages: u64) -> Seen {
    let (mut entries, mut findings) = (BTreeMap::new(), BTreeSet::new());
    let mut place = Place::default();
    loop {
        let db = Db::from_file_in_use(File::open(path).unwrap()).unwrap();
        let entry = |bucket: &[u8], key: &[u8], value: &[u8]| {
            entries.insert((bucket.to_vec(), key.to_vec()), value.to_vec());
        };
        let (checked, next) = check_stretch(&db, &place, pages, entry).unwrap();
        findings.extend(checked.findings.iter().map(|finding| finding.error.to_string()));
        match next {
            Some(next) => {
                assert_ne!(next, place, "it gets on");
                place = next;
            }
            None => return (entries, findings),
        }
    }
}

#[test]
fn stretches_of_any_length_see_together_what_one_check_sees() {
    let path = tempfile::NamedTempFile::new().unwrap();
    let (many, long, few) = (numbered(0..3000, 100), numbered(0..30, 9000), numbered(0..3, 10));
    load(path.path(), 4096, &[("a", &many), ("b", &long), ("c", &few), ("d", &many)]);
    let whole = in_stretches(path.path(), u64::MAX);
    assert_eq!((whole.0.len(), whole.1.len()), (6033, 0));
    for pages in [1, 2, 7, 50, 200] {
        assert_eq!(in_stretches(path.path(), pages), whole, "{pages}");
    }
    let file = File::options().read(true).write(true).open(path.path()).unwrap();
    for page in (2..Db::open(path.path()).unwrap().meta().root).step_by(5) {
        let mut header = [0; 8];
        file.read_exact_at(&mut header, page * 4096).unwrap();
        file.write_all_at(&[0xFF; 8], page * 4096).unwrap();
        let damaged = in_stretches(path.path(), u64::MAX);
        assert_eq!(in_stretches(path.path(), 3), damaged, "page {page}");
        file.write_all_at(&header, page * 4096).unwrap();
    }
}
