//! People of the built-in identity and invitations: what may happen once happens once.

use turnpike_core::access::Role;
use turnpike_core::ids::TenantId;
use turnpike_core::time::Timestamp;
use turnpike_store::{
    Acceptance, Accepted, Attempt, Credentials, Enrolled, Invitation, MemberChange, Person,
};

use crate::actions::audit_row;
use crate::world::{NOW, World, next_id};

const WEEK_MS: i64 = 7 * 86_400_000;
const BACK_OFF: [i64; 4] = [0, 0, 1_000, 5_000];
const LONG_AGO: Timestamp = Timestamp::from_millis(0);

fn at(ms: i64) -> Timestamp {
    NOW.plus_millis(ms)
}

fn hash(byte: u8) -> [u8; 32] {
    [byte; 32]
}

fn invitation(tenant: TenantId, byte: u8) -> Invitation {
    Invitation {
        tenant,
        id: next_id(),
        role: Role::Developer,
        note: Some("ada@example.com".to_owned()),
        hash: hash(byte),
        created_by: "member:x".to_owned(),
        created_at: NOW,
        expires_at: at(WEEK_MS),
        accepted_at: None,
        accepted_by: None,
        revoked_at: None,
    }
}

async fn invited(world: &World, tenant: TenantId, byte: u8) -> Invitation {
    let made = invitation(tenant, byte);
    let audit = audit_row(tenant);
    assert!(world.store.insert_invitation(&made, 100, &audit).await.unwrap());
    made
}

fn acceptance(invitation: &Invitation, subject: &str) -> Acceptance {
    Acceptance {
        invitation: invitation.clone(),
        subject: subject.to_owned(),
        at: at(1),
        audit: audit_row(invitation.tenant),
    }
}

fn person(login: &str) -> Person {
    Person {
        subject: next_id().to_string(),
        login: login.to_owned(),
        credentials: Credentials {
            password: "$argon2id$".to_owned(),
            totp: vec![1, 2, 3],
            totp_step: 100,
        },
        sessions_after: LONG_AGO,
        created_at: NOW,
        reset_until: None,
    }
}

/// Somebody with the recovery codes 1 to 10, who joined `tenant`.
async fn joined(world: &World, tenant: TenantId, login: &str) -> Person {
    let person = person(login);
    let byte = u8::try_from(next_id().as_u128() & 0xFF).unwrap();
    let mut made = invitation(tenant, byte);
    made.hash[1..17].copy_from_slice(made.id.as_bytes());
    let audit = audit_row(tenant);
    assert!(world.store.insert_invitation(&made, 100, &audit).await.unwrap());
    let codes: Vec<[u8; 32]> = (1..=10).map(hash).collect();
    let joined = world
        .store
        .insert_person(
            &person,
            &login.to_lowercase(),
            &codes,
            &acceptance(&made, &person.subject),
        )
        .await
        .unwrap();
    assert_eq!(joined, Enrolled::Joined);
    person
}

pub(crate) async fn a_login_is_one_persons_without_case(world: &World) {
    let tenant = world.tenant().await;
    assert!(!world.store.has_people().await.unwrap());
    let ada = joined(world, tenant, "Ada@Example.com").await;
    assert!(world.store.has_people().await.unwrap());
    let found = world.store.find_login("ada@example.com").await.unwrap();
    assert_eq!(found.as_ref(), Some(&ada));
    assert_eq!(world.store.find_person(&ada.subject).await.unwrap(), Some(ada));
    assert!(world.store.find_login("Ada@Example.com").await.unwrap().is_none());

    // Twenty with links of their own want one login.
    let mut tries = tokio::task::JoinSet::new();
    for number in 20..40 {
        let made = invited(world, tenant, number).await;
        let store = world.store.clone();
        tries.spawn(async move {
            let person = person("grace");
            let acceptance = acceptance(&made, &person.subject);
            store
                .insert_person(&person, "grace", &[], &acceptance)
                .await
                .unwrap()
        });
    }
    let results = tries.join_all().await;
    assert_eq!(
        results
            .iter()
            .filter(|result| **result == Enrolled::Joined)
            .count(),
        1
    );
    assert!(results.iter().all(|result| *result != Enrolled::NotOpen));
    // Who was refused took neither link nor membership.
    assert_eq!(world.store.list_members(tenant).await.unwrap().len(), 2);
    let all = world.store.list_invitations(tenant, None, 100).await.unwrap();
    assert_eq!(all.iter().filter(|one| one.is_open(at(2))).count(), 19);
}

pub(crate) async fn a_step_and_a_recovery_code_are_taken_once(world: &World) {
    let tenant = world.tenant().await;
    let ada = joined(world, tenant, "ada").await;
    let other = joined(world, tenant, "bob").await;
    assert!(!world.store.take_totp_step(&ada.subject, 100).await.unwrap());
    let mut steps = tokio::task::JoinSet::new();
    let mut codes = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (store, subject) = (world.store.clone(), ada.subject.clone());
        steps.spawn(async move { store.take_totp_step(&subject, 102).await.unwrap() });
        let (store, subject) = (world.store.clone(), ada.subject.clone());
        codes.spawn(async move { store.take_recovery_code(&subject, &hash(3), at(1)).await.unwrap() });
    }
    for results in [steps.join_all().await, codes.join_all().await] {
        assert_eq!(results.iter().filter(|taken| **taken).count(), 1);
    }
    // A step that was passed over is not taken afterwards.
    assert!(!world.store.take_totp_step(&ada.subject, 101).await.unwrap());
    assert!(world.store.take_totp_step(&ada.subject, 103).await.unwrap());
    assert!(!world.store.take_totp_step("nobody", 1).await.unwrap());
    assert!(
        !world
            .store
            .take_recovery_code(&ada.subject, &hash(11), NOW)
            .await
            .unwrap()
    );
    assert!(
        world
            .store
            .take_recovery_code(&other.subject, &hash(3), NOW)
            .await
            .unwrap()
    );
    assert_eq!(world.store.count_recovery_codes(&ada.subject).await.unwrap(), 9);
    let audit = audit_row(tenant);
    let fresh = [hash(90), hash(91)];
    world
        .store
        .replace_recovery_codes(&ada.subject, &fresh, Some(&audit))
        .await
        .unwrap();
    assert_eq!(world.store.count_recovery_codes(&ada.subject).await.unwrap(), 2);
    assert!(
        !world
            .store
            .take_recovery_code(&ada.subject, &hash(4), NOW)
            .await
            .unwrap()
    );
    assert_eq!(world.store.count_recovery_codes(&other.subject).await.unwrap(), 9);
}

pub(crate) async fn tries_are_counted_and_then_spaced(world: &World) {
    let take = async |now: i64| {
        let forget = at(now).plus_millis(-60_000);
        world
            .store
            .take_attempt(7, at(now), forget, &BACK_OFF)
            .await
            .unwrap()
    };
    for now in [0, 0, 1] {
        assert_eq!(take(now).await, Attempt::Allowed, "{now}");
    }
    assert_eq!(take(2).await, Attempt::NotBefore(at(1_001)));
    assert_eq!(take(1_001).await, Attempt::Allowed);
    // The longest wait stays.
    for now in [6_001, 11_001] {
        assert_eq!(take(now - 1).await, Attempt::NotBefore(at(now)));
        assert_eq!(take(now).await, Attempt::Allowed);
    }
    // One that did not fail is given back: the next is taken at once, and a failure waits as long as before.
    assert!(matches!(take(16_000).await, Attempt::NotBefore(_)));
    assert_eq!(take(16_001).await, Attempt::Allowed);
    world.store.return_attempt(7, at(16_001)).await.unwrap();
    assert_eq!(take(16_002).await, Attempt::Allowed);
    assert_eq!(take(16_003).await, Attempt::NotBefore(at(21_002)));
    // Old failures are forgotten, and all of them after a success.
    for _ in 0..3 {
        assert_eq!(take(100_000).await, Attempt::Allowed);
    }
    assert!(matches!(take(100_000).await, Attempt::NotBefore(_)));
    world.store.clear_attempts(7).await.unwrap();
    assert_eq!(take(100_001).await, Attempt::Allowed);
    // Others count for themselves.
    let other = world
        .store
        .take_attempt(8, at(2), LONG_AGO, &BACK_OFF)
        .await
        .unwrap();
    assert_eq!(other, Attempt::Allowed);
}

pub(crate) async fn twenty_tries_at_once_are_no_more_than_allowed(world: &World) {
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let store = world.store.clone();
        tries.spawn(async move { store.take_attempt(9, NOW, LONG_AGO, &BACK_OFF).await.unwrap() });
    }
    let results = tries.join_all().await;
    let allowed = results.iter().filter(|result| **result == Attempt::Allowed);
    assert_eq!(allowed.count(), 3, "{results:?}");
}

pub(crate) async fn sessions_end_and_a_reset_is_used_once(world: &World) {
    let tenant = world.tenant().await;
    let ada = joined(world, tenant, "ada").await;
    let after = async || {
        let found = world.store.find_person(&ada.subject).await.unwrap();
        found.unwrap().sessions_after
    };
    world.store.end_sessions(&ada.subject, at(50)).await.unwrap();
    world.store.end_sessions(&ada.subject, at(10)).await.unwrap();
    assert_eq!(after().await, at(50));

    let open = async |byte, until| {
        let audit = audit_row(tenant);
        world
            .store
            .open_reset(&ada.subject, &hash(byte), at(until), at(60), Some(&audit))
            .await
            .unwrap()
    };
    assert!(open(60, 1_000).await);
    assert!(open(61, 1_000).await);
    assert_eq!(after().await, at(60));
    let unknown = world
        .store
        .open_reset("nobody", &hash(62), at(1_000), NOW, None)
        .await;
    assert!(!unknown.unwrap());
    // The later link is the one that works, until it ends.
    assert!(world.store.find_reset(&hash(60), NOW).await.unwrap().is_none());
    assert!(
        world
            .store
            .find_reset(&hash(61), at(1_000))
            .await
            .unwrap()
            .is_none()
    );
    let mut anew = world.store.find_reset(&hash(61), NOW).await.unwrap().unwrap();
    assert!(anew.is_resetting(NOW) && !anew.is_resetting(at(1_000)));
    "$argon2id$anew".clone_into(&mut anew.credentials.password);
    anew.credentials.totp_step = 5;
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (store, anew, audit) = (world.store.clone(), anew.clone(), audit_row(tenant));
        tries.spawn(async move {
            store
                .finish_reset(&hash(61), &anew, &[hash(70)], at(70), Some(&audit))
                .await
                .unwrap()
        });
    }
    let results = tries.join_all().await;
    assert_eq!(results.iter().filter(|done| **done).count(), 1);
    let found = world.store.find_person(&ada.subject).await.unwrap().unwrap();
    assert!(found.credentials == anew.credentials && !found.is_resetting(NOW));
    // Only a session that begins later counts.
    assert_eq!(found.sessions_after, at(70));
    assert_eq!(world.store.count_recovery_codes(&ada.subject).await.unwrap(), 1);
}

pub(crate) async fn an_invitation_is_accepted_once(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    let made = invited(world, tenant, 1).await;
    let found = world.store.find_invitation_by_hash(&hash(1)).await.unwrap();
    assert_eq!(found.as_ref(), Some(&made));
    assert!(
        world
            .store
            .find_invitation_by_hash(&hash(2))
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        world
            .store
            .find_invitation(other, made.id)
            .await
            .unwrap()
            .is_none()
    );
    let mut tries = tokio::task::JoinSet::new();
    for number in 0..20 {
        let (store, acceptance) = (
            world.store.clone(),
            acceptance(&made, &format!("person {number}")),
        );
        tries.spawn(async move { store.accept_invitation(&acceptance).await.unwrap() });
    }
    let results = tries.join_all().await;
    assert_eq!(
        results
            .iter()
            .filter(|result| **result == Accepted::Joined)
            .count(),
        1
    );
    assert!(results.iter().all(|result| *result != Accepted::AlreadyMember));
    let members = world.store.list_members(tenant).await.unwrap();
    assert_eq!((members.len(), members[0].role), (1, Role::Developer));
    let taken = world
        .store
        .find_invitation(tenant, made.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(taken.accepted_by.as_ref(), Some(&members[0].subject));

    // A member takes nothing and keeps the role; one that was taken back or has expired is not open.
    let mut second = invitation(tenant, 3);
    second.role = Role::Owner;
    let audit = audit_row(tenant);
    assert!(world.store.insert_invitation(&second, 100, &audit).await.unwrap());
    let accept = async |invitation: &Invitation, subject: &str| {
        let acceptance = acceptance(invitation, subject);
        world.store.accept_invitation(&acceptance).await.unwrap()
    };
    let member = members[0].subject.clone();
    assert_eq!(accept(&second, &member).await, Accepted::AlreadyMember);
    let kept = world.store.list_members(tenant).await.unwrap();
    assert_eq!((kept.len(), kept[0].role), (1, Role::Developer));
    let revoke = async |tenant| {
        let audit = audit_row(tenant);
        world
            .store
            .revoke_invitation(tenant, second.id, at(1), &audit)
            .await
            .unwrap()
    };
    assert!(!revoke(other).await);
    assert!(revoke(tenant).await);
    assert!(!revoke(tenant).await);
    assert_eq!(accept(&second, "ada").await, Accepted::NotOpen);
    let third = invited(world, tenant, 4).await;
    let mut late = acceptance(&third, "ada");
    late.at = third.expires_at;
    let result = world.store.accept_invitation(&late).await.unwrap();
    assert_eq!(result, Accepted::NotOpen);
}

pub(crate) async fn invitations_are_bounded_paged_and_replaced(world: &World) {
    let (tenant, other) = (world.tenant().await, world.tenant().await);
    let mut tries = tokio::task::JoinSet::new();
    for byte in 0..20 {
        let (store, made, audit) = (world.store.clone(), invitation(tenant, byte), audit_row(tenant));
        tries.spawn(async move { store.insert_invitation(&made, 5, &audit).await.unwrap() });
    }
    let results = tries.join_all().await;
    assert_eq!(results.iter().filter(|made| **made).count(), 5);
    invited(world, other, 30).await;
    let nowhere = invitation(TenantId(next_id()), 31);
    let refused = world
        .store
        .insert_invitation(&nowhere, 5, &audit_row(nowhere.tenant))
        .await;
    assert!(!refused.unwrap());

    let all = world.store.list_invitations(tenant, None, 100).await.unwrap();
    assert_eq!(all.len(), 5);
    assert!(all.windows(2).all(|pair| pair[0].id > pair[1].id));
    let page = world
        .store
        .list_invitations(tenant, Some(all[1].id), 2)
        .await
        .unwrap();
    assert_eq!(page, all[2..4]);

    let first_start = async |byte, created_at| {
        let mut made = invitation(tenant, byte);
        "first start".clone_into(&mut made.created_by);
        made.created_at = created_at;
        let audit = audit_row(tenant);
        let made = world.store.replace_first_invitation(&made, &audit).await;
        made.unwrap()
    };
    assert!(first_start(40, NOW).await);
    assert!(first_start(41, at(5)).await);
    let open = world.store.list_invitations(tenant, None, 100).await.unwrap();
    let open: Vec<_> = open.iter().filter(|one| one.is_open(at(6))).collect();
    assert_eq!(open.len(), 6);
    assert_eq!(
        open.iter().filter(|one| one.created_by == "first start").count(),
        1
    );
    // Somebody has joined, by whatever link: nobody else is the first.
    joined(world, tenant, "ada").await;
    assert!(!first_start(42, at(6)).await);
    let gone = world.store.find_invitation_by_hash(&hash(42)).await;
    assert!(gone.unwrap().is_none());
}

pub(crate) async fn invitations_end_with_who_made_them(world: &World) {
    let (tenant, elsewhere) = (world.tenant().await, world.tenant().await);
    let key = crate::keys::key(tenant, 1);
    world.store.insert_key(&key, &[audit_row(tenant)]).await.unwrap();
    let of_key = format!("key:{}", key.id);
    let change = async |from, to| {
        let change = MemberChange {
            tenant,
            subject: "eve".to_owned(),
            from,
            to,
            at: at(1),
        };
        let audit = audit_row(tenant);
        assert!(world.store.change_member(&change, &audit).await.unwrap());
    };
    let mut byte = 100;
    let mut make = async |tenant, made_by: &str| {
        byte += 1;
        let mut made = invitation(tenant, byte);
        made_by.clone_into(&mut made.created_by);
        let audit = audit_row(tenant);
        assert!(world.store.insert_invitation(&made, 100, &audit).await.unwrap());
        made
    };
    let is_open = async |made: &Invitation| {
        let found = world.store.find_invitation(made.tenant, made.id).await.unwrap();
        found.unwrap().is_open(at(2))
    };
    let others = [
        make(tenant, "member:bob").await,
        make(tenant, "member:eve@example.com").await,
        make(elsewhere, "member:eve").await,
        make(elsewhere, &of_key).await,
    ];
    // Joining ends nothing, and neither does what makes an owner.
    let early = make(tenant, "member:eve").await;
    change(None, Some(Role::Admin)).await;
    change(Some(Role::Admin), Some(Role::Owner)).await;
    assert!(is_open(&early).await);
    // The last owner stays, so somebody else is one, too.
    let other = MemberChange {
        tenant,
        subject: "bob".to_owned(),
        from: None,
        to: Some(Role::Owner),
        at: NOW,
    };
    assert!(
        world
            .store
            .change_member(&other, &audit_row(tenant))
            .await
            .unwrap()
    );
    for (from, to) in [
        (Role::Owner, Some(Role::Admin)),
        (Role::Admin, Some(Role::Viewer)),
        (Role::Viewer, None),
    ] {
        let made = make(tenant, "member:eve").await;
        change(Some(from), to).await;
        assert!(!is_open(&made).await, "{from} {to:?}");
        let accepted = world.store.accept_invitation(&acceptance(&made, "mallory")).await;
        assert_eq!(accepted.unwrap(), Accepted::NotOpen);
    }
    assert!(!is_open(&early).await);

    let made = make(tenant, &of_key).await;
    let audit = audit_row(tenant);
    assert!(
        !world
            .store
            .revoke_key(elsewhere, key.id, at(1), &audit_row(elsewhere))
            .await
            .unwrap()
    );
    assert!(is_open(&made).await);
    assert!(
        world
            .store
            .revoke_key(tenant, key.id, at(1), &audit)
            .await
            .unwrap()
    );
    assert!(!is_open(&made).await);
    for other in &others {
        assert!(is_open(other).await, "{}", other.created_by);
    }
}
