//! The first process of every pod: holds the pod's namespaces while containers come and go.

fn main() {
    loop {
        std::thread::park();
    }
}
