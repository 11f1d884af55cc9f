//! One certificate authority per bed, a certificate per component, and kubeconfigs made of them.

use std::{
    fs::File,
    io::Write,
    os::unix::fs::{OpenOptionsExt, chown},
    path::Path,
};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};

use crate::{
    bed::{API_PORT, Bed, DNS_DOMAIN, Plan},
    error::{Result, While, create_dir, read_file, write_file},
    ip::IpFamilies,
};

/// The file that appears last: with it, everything else is there.
const DONE: &str = "done";

/// The identities that Kubernetes' components, and ours, have in a bed: name, user, groups.
const USERS: [(&str, &str, &str); 7] = [
    ("admin", "admin", "system:masters"),
    ("apiserver-kubelet-client", "kube-apiserver", "system:masters"),
    ("kube-controller-manager", "system:kube-controller-manager", ""),
    ("kube-scheduler", "system:kube-scheduler", ""),
    ("kube-proxy", "system:kube-proxy", ""),
    ("coredns", "testbed:coredns", ""),
    ("volumes", "testbed:volumes", ""),
];

/// Makes all keys, certificates and inner kubeconfigs of a bed, once.
pub fn ensure(bed: &Bed, plan: &Plan) -> Result<()> {
    if bed.pki(DONE).exists() {
        return Ok(());
    }
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::default();
    ca.distinguished_name = name(&format!("testbed-{bed}"), "");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    validity(&mut ca);
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    write_file(&bed.pki("ca.crt"), &ca_pem)?;
    write_secret(&bed.pki("ca.key"), &ca_key.serialize_pem())?;
    let service_accounts = KeyPair::generate()?;
    write_secret(&bed.pki("service-accounts.key"), &service_accounts.serialize_pem())?;
    write_file(&bed.pki("service-accounts.pub"), service_accounts.public_key_pem())?;
    let issuer = Issuer::new(ca, ca_key);

    let families = plan.ip_families;
    let names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let own_addresses = families.all().iter().flat_map(|family| [family.control_plane, family.first_service]);
    let mut api_server = names.into_iter().chain(own_addresses).map(str::to_owned).collect::<Vec<_>>();
    api_server.push(format!("kubernetes.default.svc.{DNS_DOMAIN}"));
    issue(bed, &issuer, "kube-apiserver", name("kube-apiserver", ""), &api_server)?;
    for (file, user, group) in USERS {
        issue(bed, &issuer, file, name(user, group), &[])?;
        write_inner_kubeconfig(bed, families, file)?;
    }
    for number in 1..=plan.nodes {
        let node = bed.node(number);
        let subject = name(&format!("system:node:{}", node.name()), "system:nodes");
        let mut names = vec![node.name()];
        names.extend(families.each(|family| family.node(number)));
        issue(bed, &issuer, &node.name(), subject, &names)?;
        write_inner_kubeconfig(bed, families, &node.name())?;
    }
    write_file(&bed.pki(DONE), "")
}

fn name(user: &str, group: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if !group.is_empty() {
        name.push(DnType::OrganizationName, group);
    }
    name.push(DnType::CommonName, user);
    name
}

fn issue(bed: &Bed, issuer: &Issuer<KeyPair>, file: &str, subject: DistinguishedName, names: &[String]) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut leaf = CertificateParams::default();
    leaf.distinguished_name = subject;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    leaf.subject_alt_names = names.iter().map(|name| alternative_name(name)).collect::<Result<_>>()?;
    validity(&mut leaf);
    write_file(&bed.pki(&format!("{file}.crt")), leaf.signed_by(&key, issuer)?.pem())?;
    write_secret(&bed.pki(&format!("{file}.key")), &key.serialize_pem())
}

fn alternative_name(name: &str) -> Result<SanType> {
    Ok(match name.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(name.try_into()?),
    })
}

/// Fixed dates: a bed must also start on a machine whose clock is wrong.
fn validity(certificate: &mut CertificateParams) {
    certificate.not_before = date_time_ymd(2020, 1, 1);
    certificate.not_after = date_time_ymd(2120, 1, 1);
}

fn write_secret(path: &Path, content: &str) -> Result<()> {
    create_dir(path.parent().unwrap_or(path))?;
    // A file that was readable for a moment has been read.
    let create = || {
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(content.as_bytes())
    };
    create().while_(|| format!("writing {}", path.display()))
}

fn write_inner_kubeconfig(bed: &Bed, families: IpFamilies, user: &str) -> Result<()> {
    let server = format!("https://{}", families.primary().at_control_plane(API_PORT));
    write_kubeconfig(bed, user, &server, &bed.inner_kubeconfig(user))
}

/// The administrator's kubeconfig for use from the host.
pub fn write_host_kubeconfig(bed: &Bed, port: u16) -> Result<()> {
    write_kubeconfig(bed, "admin", &format!("https://127.0.0.1:{port}"), &bed.kubeconfig())?;
    // Whoever used sudo to start the bed wants to use it without.
    match std::env::var("SUDO_UID").ok().and_then(|user| user.parse().ok()) {
        Some(user) => chown(bed.kubeconfig(), Some(user), None).while_(|| "handing over the kubeconfig".to_owned()),
        None => Ok(()),
    }
}

fn write_kubeconfig(bed: &Bed, user: &str, server: &str, to: &Path) -> Result<()> {
    let encoded = |file: String| -> Result<String> { Ok(BASE64.encode(read_file(&bed.pki(&file))?)) };
    let config = format!(
        "apiVersion: v1\n\
         kind: Config\n\
         current-context: testbed-{bed}\n\
         clusters:\n\
         - name: testbed-{bed}\n  \
           cluster:\n    \
             server: {server}\n    \
             certificate-authority-data: {authority}\n\
         contexts:\n\
         - name: testbed-{bed}\n  \
           context:\n    \
             cluster: testbed-{bed}\n    \
             user: {user}\n\
         users:\n\
         - name: {user}\n  \
           user:\n    \
             client-certificate-data: {certificate}\n    \
             client-key-data: {key}\n",
        authority = encoded("ca.crt".into())?,
        certificate = encoded(format!("{user}.crt"))?,
        key = encoded(format!("{user}.key"))?,
    );
    write_secret(to, &config)
}
