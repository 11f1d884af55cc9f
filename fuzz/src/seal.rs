//! Makes checksums right again, so that mutated bytes reach what stands behind them.
//!
//! A fuzzer cannot guess a CRC or a SHA-256. Without this every mutation would end at the first checksum, and the
//! decoders behind it would see the seeds only.

use prost::Message;
use quorate_etcd::pb::raft::{Record, SnapFile};
use quorate_etcd::wal::RecordType;
use sha2::{Digest, Sha256};

/// A log segment with a sound chain of checksums that continues `crc`, and the checksum it ends with. What follows the
/// last whole record stays as it is.
pub fn log(data: &[u8], mut crc: u32) -> (Vec<u8>, u32) {
    let mut sealed = Vec::with_capacity(data.len());
    let mut rest = data;
    while let Some((mut record, behind)) = first_record(rest) {
        if record.r#type != Some(RecordType::Crc.number()) {
            crc = crc32c::crc32c_append(crc, record.data.as_deref().unwrap_or_default());
        }
        record.crc = Some(crc);
        let body = record.encode_to_vec();
        let padding = (8 - body.len() % 8) % 8;
        let marker = if padding == 0 { 0 } else { (0x80 | padding as u64) << 56 };
        sealed.extend_from_slice(&(body.len() as u64 | marker).to_le_bytes());
        sealed.extend_from_slice(&body);
        sealed.resize(sealed.len() + padding, 0);
        rest = behind;
    }
    sealed.extend_from_slice(rest);
    (sealed, crc)
}

fn first_record(data: &[u8]) -> Option<(Record, &[u8])> {
    let (header, behind) = data.split_first_chunk::<8>()?;
    let field = u64::from_le_bytes(*header);
    let padding = if field >> 63 == 0 { 0 } else { usize::try_from(field >> 56 & 7).ok()? };
    let (body, behind) =
        behind.split_at_checked(usize::try_from(field & ((1 << 56) - 1)).ok().filter(|len| *len > 0)?)?;
    Some((Record::decode(body).ok()?, behind.get(padding..)?))
}

/// A snap file with the right checksum; anything that is none stays as it is.
pub fn snap(data: &[u8]) -> Vec<u8> {
    let Ok(SnapFile { data: Some(content), .. }) = SnapFile::decode(data) else { return data.to_vec() };
    SnapFile { crc: Some(crc32c::crc32c(&content)), data: Some(content) }.encode_to_vec()
}

/// A database whose two metas have the right checksums; the first one says where the second is.
pub fn database(data: &[u8]) -> Vec<u8> {
    let mut sealed = data.to_vec();
    let page_size = match data.get(24..28) {
        Some(&[low, high, 0, 0]) => usize::from(u16::from_le_bytes([low, high])).max(1024),
        _ => 4096,
    };
    for page in [0, page_size] {
        let Some((fields, sum)) = sealed.get_mut(page + 16..page + 80).and_then(|meta| meta.split_at_mut_checked(56))
        else {
            break;
        };
        let fnv1a = fields
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        sum.copy_from_slice(&fnv1a.to_le_bytes());
    }
    sealed
}

/// A snapshot: such a database, and its SHA-256 behind the last whole sector.
pub fn snapshot(data: &[u8]) -> Vec<u8> {
    with_digest(&database(data.get(..data.len() - data.len() % 512).unwrap_or_default()))
}

pub fn with_digest(content: &[u8]) -> Vec<u8> {
    [content, Sha256::digest(content).as_slice()].concat()
}
