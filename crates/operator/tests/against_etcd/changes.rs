//! Members that come and go, as the operator asks real ones for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::status::{EtcdClusterStatus, Latch, LatchState};
use quorate_api::{EtcdCluster, EtcdClusterSpec};
use quorate_core::action::MemberChange;
use quorate_core::guard::voters_and_learners;
use quorate_core::read::{Endpoint, Endpoints};
use quorate_core::{Action, ClusterIdentity, Effect, Guard, Reason};
use quorate_etcd::client::{Client, Options};
use quorate_operator::act::Actor;
use quorate_operator::error::Error;
use quorate_operator::etcd::{EtcdClients, MemberList, Target, list_members};
use quorate_operator::writes::Writes;
use quorate_runtime::election::Claim;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::etcd_process::VERSIONS;
use crate::members::{
    CLUSTER, Certificates, Member, NAMESPACE, UID, client_url, endpoint, hosts, peer_url, requests, target,
};
use crate::membership::{READ, secret};
use crate::network;
use crate::peers::{operator, quorum, start};
use crate::script::{expect, scripted};

const GET_CLUSTER: &str = "GET /apis/quorate.dev/v1alpha1/namespaces/default/etcdclusters/etcd";
const GENERATION: Option<i64> = Some(3);

fn cluster() -> EtcdCluster {
    let mut cluster = EtcdCluster::new(CLUSTER, EtcdClusterSpec::default());
    cluster.metadata.namespace = Some(NAMESPACE.to_owned());
    cluster.metadata.uid = Some(UID.to_owned());
    cluster.metadata.generation = GENERATION;
    let (state, since) = (LatchState::Formed, Time(Timestamp::UNIX_EPOCH));
    let latch = Latch::new(state, 1, since);
    cluster.status = Some(EtcdClusterStatus { latch: Some(latch), ..EtcdClusterStatus::default() });
    cluster
}

/// That the members are still these.
fn unchanged(list: &MemberList) -> Guard {
    Guard::MembersUnchanged {
        cluster_uid: UID.to_owned(),
        generation: GENERATION,
        epoch: 1,
        cluster_id: list.cluster_id.clone(),
        members: voters_and_learners(&list.members),
    }
}

pub(crate) fn add(ordinal: usize) -> MemberChange {
    MemberChange::AddLearner { member: format!("{CLUSTER}-{ordinal}"), peer_url: peer_url(ordinal) }
}

/// The identifier of a member, started or not.
pub(crate) fn id(list: &MemberList, ordinal: usize) -> String {
    let url = peer_url(ordinal);
    list.members.iter().find(|member| member.peer_urls == [url.as_str()]).unwrap().id.clone()
}

pub(crate) fn promote(list: &MemberList, ordinal: usize) -> MemberChange {
    MemberChange::Promote { member: format!("{CLUSTER}-{ordinal}"), id: id(list, ordinal) }
}

pub(crate) fn remove(list: &MemberList, ordinal: usize) -> MemberChange {
    MemberChange::Remove { member: format!("{CLUSTER}-{ordinal}"), id: id(list, ordinal) }
}

pub(crate) fn move_leader(list: &MemberList, from: usize, to: usize) -> MemberChange {
    let name = |ordinal| format!("{CLUSTER}-{ordinal}");
    MemberChange::MoveLeader { from: name(from), to: name(to), to_id: id(list, to) }
}

fn endpoints(members: &[Endpoint]) -> Endpoints {
    Endpoints { members: members.to_vec(), client_port: 2379, encrypted: true }
}

fn action(change: MemberChange, via: &[usize], guard: Guard) -> Action {
    let via = endpoints(&via.iter().copied().map(endpoint).collect::<Vec<_>>());
    Action { reason: Reason::Scaling, effect: Effect::ChangeMembers { change, via, guard } }
}

/// Takes actions, of which all but the last succeed. Each sees this EtcdCluster when it looks again.
async fn take_all(
    seen: &EtcdCluster,
    certificates: &Certificates,
    actions: &[Action],
    tried: usize,
) -> Result<(), Error> {
    let look = || expect(GET_CLUSTER, (200, serde_json::to_value(seen).unwrap()));
    let mut script = (0..tried).map(|_| look()).collect::<Vec<_>>();
    // The certificate is read once.
    script.insert(1, expect(READ, secret(certificates, UID)));
    let (client, server) = scripted(script);
    let (viewed, claim, etcd) = (cluster(), Claim::always(), EtcdClients::default());
    let identity = ClusterIdentity::of(&viewed.metadata).unwrap();
    let actor = Actor {
        client: &client,
        claim: &claim,
        etcd: &etcd,
        writes: &Writes::default(),
        identity: &identity,
        cluster: &viewed,
    };
    let (done, result) = Box::pin(actor.take(actions)).await;
    assert_eq!(done.len(), tried - usize::from(result.is_err()), "what was refused is told to nobody");
    drop(client);
    server.await.unwrap();
    result
}

pub(crate) async fn take(
    certificates: &Certificates,
    change: MemberChange,
    via: &[usize],
    list: &MemberList,
) -> Result<(), Error> {
    take_all(&cluster(), certificates, &[action(change, via, unchanged(list))], 1).await
}

/// What comes of it once there is nothing left to wait for.
pub(crate) async fn in_the_end(
    certificates: &Certificates,
    change: &MemberChange,
    via: &[usize],
    list: &MemberList,
) -> Result<(), Error> {
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        match take(certificates, change.clone(), via, list).await {
            Err(Error::NotYet { .. }) if Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            result => return result,
        }
    }
}

/// Says why it is not yet done.
fn not_yet(result: Result<(), Error>) -> String {
    match result {
        Err(Error::NotYet { cause, .. }) => cause,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn list(certificates: &Certificates, member: usize) -> MemberList {
    list_members(&target(&[endpoint(member)]), Some(&operator(certificates)), true).await.unwrap()
}

pub(crate) fn connect(certificates: &Certificates, member: usize) -> Client {
    Client::new(Options::new(client_url(member)).tls(operator(certificates))).unwrap()
}

/// The identifier of whoever leads, as a member has it.
pub(crate) async fn leader(certificates: &Certificates, member: usize) -> String {
    format!("{:x}", connect(certificates, member).status().await.unwrap().leader)
}

#[tokio::test]
async fn a_learner_is_added_gets_a_vote_when_it_has_caught_up_leads_and_takes_the_place_of_another() {
    let test = "changes::a_learner_is_added_gets_a_vote_when_it_has_caught_up_leads_and_takes_the_place_of_another";
    if !network::is_inside(test, &hosts(3)) {
        return;
    }
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(dir.path(), requests());
        let mut members = start(version, dir.path(), &certificates, 1);
        let alone = quorum(version, &members, 0, &operator(&certificates)).await;

        take(&certificates, add(1), &[0], &alone).await.unwrap();
        let with_learner = list(&certificates, 0).await;
        let learners = |list: &MemberList| list.members.iter().filter(|member| member.learner).count();
        assert_eq!((with_learner.members.len(), learners(&with_learner)), (2, 1), "{version}");

        let second = not_yet(take(&certificates, add(2), &[0], &with_learner).await);
        assert!(second.ends_with("etcdserver: too many learner members in cluster"), "{version}: {second}");
        let behind = not_yet(take(&certificates, promote(&with_learner, 1), &[0], &with_learner).await);
        assert!(behind.ends_with("a learner member which is in sync with leader"), "{version}: {behind}");
        let twice = in_the_end(&certificates, &add(1), &[0], &with_learner).await;
        let Err(Error::ChangeRefused { cause, .. }) = &twice else { panic!("{version}: {twice:?}") };
        assert!(cause.ends_with("etcdserver: Peer URLs already exists"), "{version}: {cause}");
        assert_eq!(list(&certificates, 0).await, with_learner, "{version}");

        members.push(Member::join(version, dir.path(), &certificates, 1));
        in_the_end(&certificates, &promote(&with_learner, 1), &[0], &with_learner).await.unwrap();
        let both = quorum(version, &members, 1, &operator(&certificates)).await;
        assert_eq!((both.members.len(), learners(&both)), (2, 0), "{version}");
        take(&certificates, promote(&both, 1), &[0], &both).await.unwrap();

        let (from, to) = if leader(&certificates, 0).await == id(&both, 0) { (0, 1) } else { (1, 0) };
        take(&certificates, move_leader(&both, from, to), &[from], &both).await.unwrap();
        assert_eq!(leader(&certificates, from).await, id(&both, to), "{version}");
        let leave = [(move_leader(&both, from, to), from), (remove(&both, from), to)];
        let leave = leave.map(|(change, via)| action(change, &[via], unchanged(&both)));
        let follower = not_yet(take_all(&cluster(), &certificates, &leave, 1).await);
        assert!(follower.ends_with("etcdserver: not leader"), "{version}: {follower}");
        assert_eq!(list(&certificates, to).await, both, "{version}: nothing is done after what was refused");

        in_the_end(&certificates, &remove(&both, from), &[to], &both).await.unwrap();
        let left = list(&certificates, to).await;
        assert_eq!(left.members.iter().map(|member| &member.id).collect::<Vec<_>>(), [&id(&both, to)], "{version}");
        take(&certificates, remove(&both, from), &[to], &left).await.unwrap();
        assert_eq!(list(&certificates, to).await, left, "{version}: it was gone already");
    }
}

#[tokio::test]
async fn nothing_is_changed_if_the_members_the_wish_or_the_cluster_are_others_by_now() {
    let test = "changes::nothing_is_changed_if_the_members_the_wish_or_the_cluster_are_others_by_now";
    if !network::is_inside(test, &hosts(1)) {
        return;
    }
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(dir.path(), requests());
        let members = start(version, dir.path(), &certificates, 1);
        let present = quorum(version, &members, 0, &operator(&certificates)).await;
        let now = cluster();
        let mut paused = cluster();
        paused.spec.maintenance.paused = true;
        let mut edited = cluster();
        edited.metadata.generation = Some(4);
        let mut another = cluster();
        another.metadata.uid = Some("another".to_owned());
        let with = |change: fn(&mut MemberList)| {
            let mut list = present.clone();
            change(&mut list);
            unchanged(&list)
        };
        let fewer = with(|list| list.members.clear());
        let without_vote = with(|list| list.members[0].learner = true);
        let others = with(|list| list.members[0].id = "beef".to_owned());
        let elsewhere = with(|list| list.cluster_id = "beef".to_owned());
        let cases = [
            ("somebody was added", &now, fewer),
            ("the member got a vote", &now, without_vote),
            ("the member is another one", &now, others),
            ("whoever answers is of another cluster", &now, elsewhere),
            ("the cluster is paused", &paused, unchanged(&present)),
            ("the wish is another one", &edited, unchanged(&present)),
            ("the EtcdCluster was made anew", &another, unchanged(&present)),
        ];
        for (case, seen, guard) in cases {
            let result = take_all(seen, &certificates, &[action(add(1), &[0], guard)], 1).await;
            assert!(matches!(result, Err(Error::Outdated { .. })), "{version}, {case}: {result:?}");
        }
        assert_eq!(list(&certificates, 0).await, present, "{version}");
        take(&certificates, add(1), &[0], &present).await.unwrap();
    }
}

#[tokio::test]
async fn nobody_is_added_or_removed_while_members_are_out_of_touch() {
    let test = "changes::nobody_is_added_or_removed_while_members_are_out_of_touch";
    if !network::is_inside(test, &hosts(4)) {
        return;
    }
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(dir.path(), requests());
        // The third of them never starts.
        let members = [0, 1].map(|ordinal| Member::start(version, dir.path(), &certificates, ordinal, 3));
        let three = quorum(version, &members, 0, &operator(&certificates)).await;
        for change in [add(3), remove(&three, 1)] {
            let refused = not_yet(take(&certificates, change, &[0], &three).await);
            assert!(refused.ends_with("etcdserver: unhealthy cluster"), "{version}: {refused}");
        }
        let nobody = not_yet(take(&certificates, add(3), &[2], &three).await);
        assert!(nobody.contains("etcd-2"), "{version}: {nobody}");
        assert_eq!(list(&certificates, 0).await, three, "{version}");
    }
}

#[tokio::test]
async fn a_follower_passes_refusals_on_and_those_who_never_started_are_no_quorum() {
    let test = "changes::a_follower_passes_refusals_on_and_those_who_never_started_are_no_quorum";
    if !network::is_inside(test, &hosts(4)) {
        return;
    }
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(dir.path(), requests());
        let members = start(version, dir.path(), &certificates, 2);
        let two = quorum(version, &members, 0, &operator(&certificates)).await;
        in_the_end(&certificates, &add(2), &[0], &two).await.unwrap();
        let with_learner = list(&certificates, 0).await;
        for member in [0, 1] {
            let behind = not_yet(take(&certificates, promote(&with_learner, 2), &[member], &with_learner).await);
            assert!(behind.ends_with("a learner member which is in sync with leader"), "{version}: {behind}");
        }
        take(&certificates, remove(&with_learner, 2), &[1], &with_learner).await.unwrap();

        // In the same second it would be the same member once more.
        in_the_end(&certificates, &add(2), &[0], &two).await.unwrap();
        let with_learner = list(&certificates, 0).await;
        take(&certificates, remove(&with_learner, 2), &[0], &with_learner).await.unwrap();

        // As a hand does it: a vote for somebody who is not there.
        connect(&certificates, 0).member_add(vec![peer_url(3)], false).await.unwrap();
        let three = list(&certificates, 0).await;
        let refused = not_yet(take(&certificates, remove(&three, 1), &[0], &three).await);
        assert!(refused.ends_with("due to not enough started members"), "{version}: {refused}");
        assert_eq!(list(&certificates, 0).await, three, "{version}");
    }
}

/// A way to the first member on which answers can be lost.
struct Lossy {
    lose: Arc<AtomicBool>,
}

impl Lossy {
    const ADDRESS: &str = "10.0.2.0";

    async fn open() -> Self {
        let lose = Arc::<AtomicBool>::default();
        let listener = TcpListener::bind((Self::ADDRESS, 2379)).await.unwrap();
        let is_lost = Arc::clone(&lose);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect((endpoint(0).address, 2379)).await.unwrap();
                tokio::spawn(Self::carry(near, far, Arc::clone(&is_lost)));
            }
        });
        Self { lose }
    }

    async fn carry(near: TcpStream, far: TcpStream, lost: Arc<AtomicBool>) {
        let (mut from_near, mut to_near) = near.into_split();
        let (mut from_far, mut to_far) = far.into_split();
        tokio::spawn(async move { tokio::io::copy(&mut from_near, &mut to_far).await });
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from_far.read(&mut bytes).await {
            if !lost.load(Ordering::SeqCst) && to_near.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    }
}

#[tokio::test]
async fn a_change_whose_answer_is_lost_is_not_asked_for_again_on_what_was_known_before() {
    let test = "changes::a_change_whose_answer_is_lost_is_not_asked_for_again_on_what_was_known_before";
    if !network::is_inside(test, &hosts(2)) {
        return;
    }
    let lossy = Lossy::open().await;
    for version in VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(dir.path(), requests());
        let members = start(version, dir.path(), &certificates, 1);
        let before = quorum(version, &members, 0, &operator(&certificates)).await;
        lossy.lose.store(false, Ordering::SeqCst);
        let (client, server) = scripted(vec![expect(READ, secret(&certificates, UID))]);
        let (etcd, identity) = (EtcdClients::default(), ClusterIdentity::of(&cluster().metadata).unwrap());
        let via = endpoints(&[Endpoint { address: Lossy::ADDRESS.to_owned(), ..endpoint(0) }]);
        let confirmed = etcd.confirm(&client, &Target::new(&identity, &via)).await.unwrap();
        lossy.lose.store(true, Ordering::SeqCst);
        let lost = not_yet(confirmed.change(&add(1)).await);
        assert!(lost.contains("its outcome is unknown"), "{version}: {lost}");
        server.await.unwrap();

        let after = list(&certificates, 0).await;
        let added = voters_and_learners(&after.members).len() - voters_and_learners(&before.members).len();
        assert_eq!(added, 1, "{version}: it was done all the same");
        let again = take(&certificates, add(1), &[0], &before).await;
        assert!(matches!(again, Err(Error::Outdated { .. })), "{version}: {again:?}");
        assert_eq!(list(&certificates, 0).await, after, "{version}");
    }
}
