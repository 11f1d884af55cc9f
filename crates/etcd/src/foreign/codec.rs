//! Opens a backup file for reading, decompressed.

use std::fs::File;
use std::io::{self, BufReader, Read};

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use super::lzw::LzwReader;
use super::names::{BackupFile, Compression};

pub fn open(file: &BackupFile) -> io::Result<Box<dyn Read + Send>> {
    let input = BufReader::with_capacity(128 << 10, File::open(&file.path)?);
    Ok(match file.name.compression {
        Compression::None => Box::new(input),
        Compression::Gzip => Box::new(MultiGzDecoder::new(input)),
        Compression::Zlib => Box::new(ZlibDecoder::new(input)),
        Compression::Lzw => Box::new(LzwReader::new(input)),
    })
}
