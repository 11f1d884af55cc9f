//! Certificates as a member pod has them mounted, of one authority. Their common name is nobody that etcd knows.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

pub(crate) fn write(dir: &Path) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let ca = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    for whose in ["peer", "peer-client", "server", "agent"] {
        let mut leaf = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = leaf.signed_by(&key, &issuer).unwrap().pem();
        let dir = dir.join(whose);
        fs::create_dir(&dir).unwrap();
        for (name, text) in [("ca.crt", &ca), ("tls.crt", &certificate), ("tls.key", &key.serialize_pem())] {
            fs::write(dir.join(name), text).unwrap();
        }
    }
}
