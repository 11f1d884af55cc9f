//! Random but repeatable use of an etcd: everything that leaves a trace in its files.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::gateway::{Gateway, base64, number};

/// A small generator of our own, so that a seed in a test's name means the same for ever.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn size(&mut self, limit: u64) -> usize {
        usize::try_from(self.below(limit)).unwrap()
    }
}

#[derive(Debug)]
pub(crate) struct Workload {
    random: Random,
    leases: Vec<i64>,
}

impl Workload {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), leases: Vec::new() }
    }

    pub(crate) fn run(&mut self, gateway: &mut Gateway, steps: usize) {
        for _ in 0..steps {
            self.step(gateway);
        }
    }

    fn step(&mut self, gateway: &mut Gateway) {
        match self.random.below(100) {
            0..30 => {
                let operations = self.transaction();
                gateway.post("kv/txn", &json!({ "success": operations }));
            }
            30..40 => {
                let delete = self.delete();
                gateway.post("kv/deleterange", &delete);
            }
            40..48 => {
                let answer = gateway.post("lease/grant", &json!({ "TTL": 600 + self.random.below(60) }));
                self.leases.push(number(&answer["ID"]));
            }
            48..52 if !self.leases.is_empty() => {
                let at = self.random.size(self.leases.len() as u64);
                let lease = self.leases.swap_remove(at);
                gateway.post("lease/revoke", &json!({ "ID": lease.to_string() }));
            }
            52 => {
                // A mebibyte is close to the largest request etcd accepts.
                let value = vec![b'x'; 1 << 20];
                gateway.post("kv/put", &json!({ "key": base64(b"large"), "value": base64(&value) }));
            }
            _ => {
                let put = self.put();
                gateway.post("kv/put", &put);
            }
        }
    }

    /// Puts keys on leases that nobody keeps alive, and returns once etcd has deleted them for it: a revision that no
    /// client asked for, of as many deletions as the lease had keys.
    pub(crate) fn expire(gateway: &mut Gateway) {
        let answer = gateway.post("lease/grant", &json!({ "TTL": 1 }));
        let keys: Vec<String> = (0..3).map(|n| base64(format!("/expiring/{n}").as_bytes())).collect();
        for key in &keys {
            gateway.post("kv/put", &json!({ "key": key, "value": base64(b"short"), "lease": answer["ID"] }));
        }
        let granted = gateway.revision();
        let patience = Instant::now() + Duration::from_mins(1);
        while gateway.revision() == granted {
            assert!(Instant::now() < patience, "the lease never expired");
            thread::sleep(Duration::from_millis(50));
        }
        for key in &keys {
            assert!(gateway.post("kv/range", &json!({ "key": key }))["kvs"].is_null(), "expired, and still there");
        }
    }

    fn key(&mut self) -> Vec<u8> {
        match self.random.below(10) {
            0 => vec![0xFF, 0, u8::try_from(self.random.below(7)).unwrap(), b'_', b't'],
            1..4 => format!("/registry/pods/{}", self.random.below(40)).into_bytes(),
            _ => format!("/registry/leases/{}", self.random.below(25)).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.random.below(20) {
            0 | 1 => 0,
            2 => 5000 + self.random.size(20_000),
            _ => 1 + self.random.size(400),
        };
        (0..length).map(|_| u8::try_from(self.random.below(256)).unwrap()).collect()
    }

    fn put_of(&mut self, key: &[u8]) -> Value {
        let mut put = json!({ "key": base64(key), "value": base64(&self.value()) });
        if self.random.below(4) == 0 && !self.leases.is_empty() {
            let at = self.random.size(self.leases.len() as u64);
            put["lease"] = json!(self.leases[at].to_string());
        }
        put
    }

    fn put(&mut self) -> Value {
        let key = self.key();
        self.put_of(&key)
    }

    fn delete(&mut self) -> Value {
        if self.random.below(8) == 0 {
            return json!({ "key": base64(b"/registry/leases/1"), "range_end": base64(b"/registry/leases/3") });
        }
        json!({ "key": base64(&self.key()) })
    }

    /// Several operations in one revision; etcd refuses two changes of one key in a transaction.
    fn transaction(&mut self) -> Vec<Value> {
        let wanted = 1 + self.random.size(9);
        let keys: BTreeSet<Vec<u8>> = (0..wanted).map(|_| self.key()).collect();
        let mut operations = Vec::new();
        for key in keys {
            if self.random.below(4) == 0 {
                operations.push(json!({ "request_delete_range": { "key": base64(&key) } }));
            } else {
                operations.push(json!({ "request_put": self.put_of(&key) }));
            }
        }
        operations
    }
}
