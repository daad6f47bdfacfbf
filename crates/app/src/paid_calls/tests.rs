//! Tests of the terms: what the seal covers, what is checked of an authorisation, what the other protocol brings.

use serde_json::json;
use turnpike_core::access::KeyPepper;
use turnpike_core::ids::RequestId;
use turnpike_core::ledger::paid_call::{Operation, PaidSubject, PayerCap};
use turnpike_core::money::Micros;
use turnpike_core::pricing::{Charge, EffectiveMarkup};
use turnpike_core::time::Timestamp;
use turnpike_core::x402::{
    Address, Authorization, PaymentPayload, PaymentRequirements, Scheme, Supported, SupportedKind, wire,
};
use uuid::Uuid;

use super::mpp::Credential;
use super::prepare::{Assortment, LIST_MODELS_FEE, Prepared, Work, body_hash};
use super::settings::PaidCallSettings;
use super::terms::Offering;

const NETWORK: &str = "eip155:84532";
const ASSET: &str = "0x036CbD53842c5426634e7929541eC2318f3dCF7e";
const PAY_TO: &str = "0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65";
const FACILITATOR: &str = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";

fn settings() -> PaidCallSettings {
    PaidCallSettings {
        public_url: "http://127.0.0.1:8402".into(),
        realm: "127.0.0.1".into(),
        vendor: "vendor".into(),
        brand: "svc".into(),
        simulated: false,
        network: NETWORK.into(),
        chain_id: 84_532,
        asset: ASSET.into(),
        asset_address: Address::parse(ASSET).unwrap(),
        asset_name: "USDC".into(),
        asset_version: "2".into(),
        pay_to: PAY_TO.into(),
        pay_to_address: Address::parse(PAY_TO).unwrap(),
        seal: KeyPepper::new(b"secret"),
        cap: PayerCap {
            amount: Micros::new(1_000_000),
            calls: 10,
        },
        facilitator_secs: 75,
        sold: Assortment {
            flash: "vendor-v4-flash".into(),
            pro: "vendor-v4-pro".into(),
            markup: EffectiveMarkup::NONE,
        },
    }
}

fn offering() -> Offering {
    let kind = |scheme: &str| SupportedKind {
        x402_version: 2,
        scheme: scheme.to_owned(),
        network: NETWORK.to_owned(),
        extra: json!({ "facilitatorAddress": FACILITATOR }).as_object().cloned(),
    };
    let supported = Supported {
        kinds: vec![kind("exact"), kind("upto")],
        extensions: vec!["eip2612GasSponsoring".to_owned()],
    };
    Offering::of(&supported, NETWORK)
}

/// A request whose answer is made here, whatever the operation.
fn prepared(operation: Operation, body: &[u8]) -> Prepared {
    Prepared {
        subject: PaidSubject {
            operation,
            body_hash: body_hash(operation, body),
            provider: None,
            model: None,
            price: "{}".into(),
            base: Micros::ZERO,
        },
        max: Charge {
            base: Micros::ZERO,
            markup: Micros::ZERO,
            flat: LIST_MODELS_FEE,
            margin: LIST_MODELS_FEE,
            effective: LIST_MODELS_FEE,
        },
        work: Work::Local(b"{}"[..].into()),
    }
}

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn accepted(settings: &PaidCallSettings, request: &Prepared, id: RequestId) -> PaymentRequirements {
    let terms = settings.terms(request, &offering(), id, None, NOW).unwrap();
    terms.required.accepts.into_iter().next().unwrap()
}

#[test]
fn terms_hold_for_the_request_they_were_given_for_and_for_nothing_else() {
    let settings = settings();
    let id = RequestId(Uuid::from_u128(1));
    for operation in [Operation::Chat, Operation::ListModels] {
        let request = prepared(operation, b"{}");
        let terms = accepted(&settings, &request, id);
        let holds =
            |settings: &PaidCallSettings, request: &Prepared, id, terms: &PaymentRequirements, now| {
                settings.check_terms(request, id, terms, now)
            };
        assert_eq!(holds(&settings, &request, id, &terms, NOW), Ok(()));
        // Another body, id, operation, secret.
        let other = RequestId(Uuid::from_u128(2));
        assert!(holds(&settings, &prepared(operation, b"{ }"), id, &terms, NOW).is_err());
        assert!(holds(&settings, &request, other, &terms, NOW).is_err());
        let elsewhere = prepared(Operation::Fim, b"{}");
        assert!(holds(&settings, &elsewhere, id, &terms, NOW).is_err());
        let foreign = PaidCallSettings {
            seal: KeyPepper::new(b"another"),
            ..self::settings()
        };
        assert!(holds(&foreign, &request, id, &terms, NOW).is_err());
        // Each member of the terms.
        let changes: [fn(&mut PaymentRequirements); 8] = [
            |terms| terms.amount = "1".to_owned(),
            |terms| terms.network = "eip155:1".to_owned(),
            |terms| terms.asset = PAY_TO.to_owned(),
            |terms| terms.pay_to = ASSET.to_owned(),
            |terms| terms.max_timeout_seconds += 1,
            |terms| terms.extra["svcExpiresAt"] = json!(1_900_000_000),
            |terms| terms.extra["svcSeal"] = json!("AAAA"),
            |terms| {
                terms.scheme = match terms.scheme {
                    Scheme::Exact => Scheme::Upto,
                    Scheme::Upto => Scheme::Exact,
                }
            },
        ];
        for change in changes {
            let mut changed = terms.clone();
            change(&mut changed);
            assert!(
                holds(&settings, &request, id, &changed, NOW).is_err(),
                "{changed:?}"
            );
        }
        if operation == Operation::Chat {
            let mut changed = terms.clone();
            changed.extra["facilitatorAddress"] = json!(PAY_TO);
            assert!(holds(&settings, &request, id, &changed, NOW).is_err());
        }
        // Until they expire, and not a second longer.
        let last = NOW.plus_millis(299_999);
        assert_eq!(holds(&settings, &request, id, &terms, last), Ok(()));
        let late = holds(&settings, &request, id, &terms, NOW.plus_millis(300_000));
        assert_eq!(late.unwrap_err().reason, "payment_terms_expired");
    }
}

// Fault matrix 191, 192
#[test]
fn an_authorisation_that_is_not_what_was_agreed_is_refused_here() {
    let settings = settings();
    let good = |scheme| Authorization {
        scheme,
        payer: Address([7; 20]),
        nonce: [1; 32],
        to: settings.pay_to_address,
        token: settings.asset_address,
        value: 3000,
        valid_after: 0,
        valid_before: NOW.millis() / 1000 + 121,
        spender: (scheme == Scheme::Upto).then_some(turnpike_core::x402::evm::UPTO_PROXY),
        facilitator: (scheme == Scheme::Upto).then(|| Address::parse(FACILITATOR).unwrap()),
        signature: vec![0; 65],
    };
    let check = |authorization: &Authorization| {
        settings
            .check_authorization(authorization, "3000", Some(FACILITATOR), 30_000, NOW)
            .map_err(|refused| refused.reason)
    };
    for scheme in [Scheme::Exact, Scheme::Upto] {
        assert_eq!(check(&good(scheme)), Ok(()));
        let changes: [fn(&mut Authorization); 8] = [
            |one| one.to = Address([1; 20]),
            |one| one.token = Address([1; 20]),
            |one| one.value = 2999,
            |one| one.value = 3001,
            |one| one.valid_after = NOW.millis() / 1000 + 1,
            |one| one.valid_before = NOW.millis() / 1000 + 120,
            |one| one.valid_before = 0,
            |one| one.valid_before = 253_402_207_201,
        ];
        for change in changes {
            let mut changed = good(scheme);
            change(&mut changed);
            assert!(check(&changed).is_err(), "{changed:?}");
        }
    }
    let changes: [fn(&mut Authorization); 4] = [
        |one| one.spender = None,
        |one| one.spender = Some(Address([1; 20])),
        |one| one.facilitator = None,
        |one| one.facilitator = Some(Address([1; 20])),
    ];
    for change in changes {
        let mut changed = good(Scheme::Upto);
        change(&mut changed);
        assert!(check(&changed).is_err(), "{changed:?}");
    }
}

#[test]
fn what_a_facilitator_gets_has_nothing_of_ours() {
    let settings = settings();
    let id = RequestId(Uuid::from_u128(1));
    let terms = settings
        .terms(&prepared(Operation::Chat, b"{}"), &offering(), id, None, NOW)
        .unwrap();
    let mut accepted = terms.required.accepts[0].clone();
    accepted.extra.insert("foreign".to_owned(), json!(1));
    let payment = PaymentPayload {
        x402_version: 2,
        accepted,
        // Two payments in one: the facilitator must judge the one that is claimed.
        payload: json!({ "authorization": { "foreign": 1 }, "permit2Authorization": { "foreign": 1 } })
            .as_object()
            .cloned()
            .unwrap(),
        resource: Some(json!("foreign")),
        extensions: Some(terms.required.extensions.clone()),
    };
    assert_eq!(settings.ids_in(&payment).unwrap(), [Some(id), Some(id)]);
    let stripped = settings.forwarded(&payment);
    let text = serde_json::to_string(&stripped).unwrap();
    assert!(!text.contains("foreign"), "{text}");
    assert!(!text.contains("svc") && !text.contains(&id.to_string()), "{text}");
    assert!(text.contains("eip2612GasSponsoring") && text.contains("facilitatorAddress"));
    // Small enough for clients and proxies, with everything in it.
    assert!(wire::to_header(&terms.required).unwrap().len() < 4096);
}

#[test]
fn a_credential_becomes_the_same_payment_when_it_answers_our_challenge() {
    let settings = settings();
    let id = RequestId(Uuid::from_u128(1));
    let request = prepared(Operation::ListModels, b"{}");
    let terms = settings.terms(&request, &offering(), id, None, NOW).unwrap();
    let challenge = settings.challenge(&terms, b"{}");
    let nonce = turnpike_upstream::payments::mpp_nonce(&challenge.id, &challenge.realm);
    let from = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
    let credential = Credential {
        challenge: challenge.clone(),
        source: Some(format!("did:pkh:{NETWORK}:{from}")),
        payload: json!({
            "type": "authorization", "from": from, "to": PAY_TO, "value": "3000", "validAfter": "0",
            "validBefore": "1800000120", "nonce": format!("0x{}", hex::encode(nonce)), "signature": "0x00",
        })
        .as_object()
        .cloned()
        .unwrap(),
    };
    assert_eq!(credential.id().unwrap(), id);
    let payment = settings.accept_credential(&credential, b"{}", NOW).unwrap();
    assert_eq!(payment.accepted.scheme, Scheme::Exact);
    assert_eq!(payment.accepted.amount, "3000");
    let authorization = Authorization::read(&payment).unwrap();
    assert_eq!(authorization.nonce, nonce);

    let refused = |change: fn(&mut Credential)| {
        let mut changed = credential.clone();
        change(&mut changed);
        let refused = settings.accept_credential(&changed, b"{}", NOW);
        refused.unwrap_err().reason
    };
    let challenge_changes: [fn(&mut Credential); 6] = [
        |one| one.challenge.id = Uuid::from_u128(2).to_string(),
        |one| one.challenge.realm = "example.com".to_owned(),
        |one| one.challenge.expires = Some("2099-01-01T00:00:00Z".to_owned()),
        |one| one.challenge.opaque = None,
        |one| one.challenge.request = "e30".to_owned(),
        |one| one.challenge.intent = "session".to_owned(),
    ];
    for change in challenge_changes {
        assert_eq!(refused(change), "invalid-challenge");
    }
    assert_eq!(
        settings
            .accept_credential(&credential, b"{ }", NOW)
            .unwrap_err()
            .reason,
        "invalid-challenge"
    );
    assert_eq!(
        refused(|one| one.payload["nonce"] = json!("0x01")),
        "verification-failed"
    );
    assert_eq!(
        refused(|one| one.source = Some("did:pkh:eip155:1:0x00".to_owned())),
        "verification-failed"
    );
    assert_eq!(
        refused(|one| one.payload["type"] = json!("hash")),
        "invalid-payload"
    );
}
