//! The DNS domain of the Kubernetes cluster, as the operator's own pod has it in its search path.

/// Where a pod's search path is.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Longest name in DNS.
const LONGEST: usize = 253;
const LONGEST_LABEL: usize = 63;

/// Kubernetes writes `NAMESPACE.svc.DOMAIN svc.DOMAIN DOMAIN`, and behind it what the node has. A node's own domain may
/// look like the first of them, so the second must be there too. A pod on the node's network has none of this.
pub fn discover(resolv_conf: &str) -> Option<String> {
    let search = search(resolv_conf);
    let is_searched = |name: &str| search.iter().any(|entry| entry == name);
    search.iter().find_map(|entry| {
        let (namespace, domain) = entry.split_once(".svc.")?;
        let is_ours = is_label(namespace) && is_searched(&format!("svc.{domain}"));
        parse(domain).ok().filter(|_| is_ours)
    })
}

/// The last line that sets the search path counts.
fn search(resolv_conf: &str) -> Vec<String> {
    let mut lines = resolv_conf.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        matches!(words.next(), Some("search" | "domain")).then_some(words)
    });
    let names = lines.next_back().into_iter().flatten();
    names.map(|name| name.trim_end_matches('.').to_ascii_lowercase()).collect()
}

/// A domain as it is written into certificates: lower case, no dot at the end.
pub fn parse(text: &str) -> Result<String, String> {
    let name = text.trim().trim_end_matches('.').to_ascii_lowercase();
    if name.len() <= LONGEST && name.split('.').all(is_label) {
        Ok(name)
    } else {
        Err("it must be a DNS name, such as cluster.local".to_owned())
    }
}

fn is_label(text: &str) -> bool {
    let inner = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    inner && !text.is_empty() && text.len() <= LONGEST_LABEL && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_is_in_the_search_path_of_a_pod() {
        let usual = "search quorate-system.svc.cluster.local svc.cluster.local cluster.local\n\
                     nameserver 10.96.0.10\noptions ndots:5\n";
        assert_eq!(discover(usual).as_deref(), Some("cluster.local"));
        let own = "# made by the kubelet\nnameserver 10.96.0.10\n\
                   search\tquorate.svc.k8s.example.com. svc.k8s.example.com. k8s.example.com. corp.example.com";
        assert_eq!(discover(own).as_deref(), Some("k8s.example.com"));
        let short = "search a.svc.Kube svc.kube kube";
        assert_eq!(discover(short).as_deref(), Some("kube"));
    }

    #[test]
    fn what_the_node_searches_does_not_count() {
        let behind = "search a.svc.one svc.one one b.svc.two svc.two";
        assert_eq!(discover(behind).as_deref(), Some("one"), "Kubernetes comes first");
        let node = "search team.svc.corp.example.com corp.example.com";
        assert_eq!(discover(node), None, "it only looks like it");
        assert_eq!(discover("search svc.corp.example.com corp.example.com"), None);
    }

    #[test]
    fn without_a_search_path_nothing_is_found() {
        for text in ["", "nameserver 127.0.0.53\noptions edns0 trust-ad\n", "search\n", "search .\n", "domain corp\n"] {
            assert_eq!(discover(text), None, "{text:?}");
        }
        let replaced = "search a.svc.one svc.one one\nsearch corp.example.com\n";
        assert_eq!(discover(replaced), None, "the last line counts");
        let bad = "search a.svc.-x_y svc.-x_y";
        assert_eq!(discover(bad), None, "what no certificate could hold");
    }

    #[test]
    fn a_domain_is_a_name() {
        assert_eq!(parse("Cluster.Local.").as_deref(), Ok("cluster.local"));
        for wrong in ["", ".", "a..b", "-a", "a_b", "*.a", &"a".repeat(64)] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
