//! What the stand-in does for a request: pure on its state.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Recorded, State, Stored, objects};

type Form = BTreeMap<String, String>;
type Answer = (u16, Value);

/// The fields `name[key]` of a form.
pub(super) fn metadata(form: &Form, name: &str) -> Value {
    let prefix = format!("{name}[");
    let fields = form.iter().filter_map(|(field, value)| {
        let key = field.strip_prefix(&prefix)?.strip_suffix(']')?;
        Some((key.to_owned(), Value::from(value.as_str())))
    });
    Value::Object(fields.collect::<Map<_, _>>())
}

pub(super) fn error(status: u16, code: &str, message: &str) -> Answer {
    let kind = match status {
        402 => "card_error",
        500.. => "api_error",
        _ if code.starts_with("idempotency") => "idempotency_error",
        _ => "invalid_request_error",
    };
    (
        status,
        json!({"error": {"type": kind, "code": code, "message": message}}),
    )
}

fn missing(id: &str) -> Answer {
    error(404, "resource_missing", &format!("No such object: '{id}'"))
}

fn cents(form: &Form, name: &str) -> Option<i64> {
    form.get(name)?.parse().ok()
}

impl State {
    /// Answers a request, once per idempotency key.
    pub(super) fn answer(&mut self, request: &Recorded) -> Answer {
        let key = request.headers.get("authorization").map_or("", String::as_str);
        if !key.starts_with("Bearer sk_") && !key.starts_with("Bearer rk_") {
            let words = format!("Invalid API Key provided: {key}");
            return error(401, "api_key_invalid", &words);
        }
        let Some(key) = request.idempotency_key().filter(|_| request.method == "POST") else {
            return self.act(request);
        };
        let fingerprint = format!("{} {} {}", request.method, request.path, request.body);
        if let Some(stored) = self.stored.get(key) {
            if stored.request != fingerprint {
                let words = "Keys for idempotent requests can only be used with the same parameters.";
                let (status, mut answer) = error(400, "idempotency_error", words);
                answer["error"].as_object_mut().unwrap().remove("code");
                return (status, answer);
            }
            return (stored.status, stored.answer.clone());
        }
        let (status, answer) = self.act(request);
        let stored = Stored {
            request: fingerprint,
            status,
            answer: answer.clone(),
        };
        self.stored.insert(key.to_owned(), stored);
        (status, answer)
    }

    fn act(&mut self, request: &Recorded) -> Answer {
        let parts: Vec<&str> = request.path.trim_start_matches('/').split('/').collect();
        match (request.method.as_str(), parts.as_slice()) {
            ("POST", ["v1", "checkout", "sessions"]) => self.make_session(&request.form),
            ("POST", ["v1", "checkout", "sessions", id, "expire"]) => self.expire_session(id),
            ("POST", ["v1", "payment_intents"]) => self.make_charge(&request.form),
            ("POST", ["v1", "refunds"]) => self.make_refund(&request.form),
            ("POST", ["v1", "accounts"]) => self.make_account(),
            ("POST", ["v1", "account_links"]) => self.make_account_link(&request.form),
            ("POST", ["v1", "transfers"]) => self.make_transfer(&request.form),
            ("GET", ["v1", "checkout", "sessions", id]) => self.find_session(id, &request.query),
            ("GET", ["v1", "payment_intents" | "refunds" | "disputes" | "accounts", id]) => self.find(id),
            _ => error(404, "url_invalid", "Unrecognized request URL"),
        }
    }

    pub(super) fn keep(&mut self, kind: &'static str, id: &str, object: Value) -> Answer {
        self.objects.insert(id.to_owned(), object.clone());
        *self.made.entry(kind).or_default() += 1;
        (200, object)
    }

    fn find(&self, id: &str) -> Answer {
        self.objects
            .get(id)
            .map_or_else(|| missing(id), |object| (200, object.clone()))
    }

    fn find_session(&self, id: &str, query: &str) -> Answer {
        let (status, mut session) = self.find(id);
        if query.contains("payment_intent")
            && let Some(intent) = session["payment_intent"].as_str()
        {
            session["payment_intent"] = self.objects[intent].clone();
        }
        (status, session)
    }

    fn make_session(&mut self, form: &Form) -> Answer {
        let Some(amount) = cents(form, "line_items[0][price_data][unit_amount]") else {
            return error(400, "parameter_missing", "Missing required param: line_items.");
        };
        if !form.contains_key("success_url") || !form.contains_key("cancel_url") {
            return error(400, "parameter_missing", "Missing required param: success_url.");
        }
        if amount < 50 {
            return error(400, "amount_too_small", "The total must be at least $0.50 usd.");
        }
        let now = self.now();
        if cents(form, "expires_at").is_some_and(|at| !(now + 1800..=now + 86_400).contains(&at)) {
            let words = "The `expires_at` timestamp must be between 30 minutes and 24 hours from now.";
            return error(400, "", words);
        }
        let id = self.id("cs_test");
        let usage = form.get("payment_intent_data[setup_future_usage]");
        let of_payment = (metadata(form, "payment_intent_data[metadata]"), json!(usage));
        self.payment_forms.insert(id.clone(), of_payment);
        let session = objects::session(&id, form, amount, now, self.livemode);
        self.keep("checkout.session", &id, session)
    }

    fn expire_session(&mut self, id: &str) -> Answer {
        match self.objects.get(id).map(|session| session["status"] == "open") {
            None => missing(id),
            Some(false) => error(
                400,
                "",
                "Only Checkout Sessions with a status in [\"open\"] can be expired.",
            ),
            Some(true) => {
                self.expire(id);
                self.find(id)
            }
        }
    }

    fn make_charge(&mut self, form: &Form) -> Answer {
        let (Some(amount), Some(method)) = (cents(form, "amount"), form.get("payment_method")) else {
            return error(400, "parameter_missing", "Missing required param: amount.");
        };
        let declined = match method.as_str() {
            "pm_card_chargeDeclined" => Some("card_declined".to_owned()),
            "pm_card_authenticationRequired" => Some("authentication_required".to_owned()),
            _ => self.declining.clone(),
        };
        let slow = method == "pm_card_processing";
        let (id, charge) = (self.id("pi"), self.id("ch"));
        let intent = objects::intent(&objects::NewIntent {
            id: &id,
            charge: &charge,
            amount,
            currency: json!(form.get("currency")),
            customer: json!(form.get("customer")),
            method: json!(method),
            metadata: metadata(form, "metadata"),
            setup_future_usage: Value::Null,
            now: self.now(),
            live: self.livemode,
        });
        self.keep("payment_intent", &id, intent);
        match declined {
            Some(code) => {
                self.decline(&id, &code);
                let (status, mut answer) = error(402, &code, "Your card was declined.");
                answer["error"]["payment_intent"] = self.objects[&id].clone();
                return (status, answer);
            }
            None if !slow => self.succeed(&id),
            None => {}
        }
        self.find(&id)
    }

    fn make_refund(&mut self, form: &Form) -> Answer {
        let payment = form.get("payment_intent").cloned().unwrap_or_default();
        if !self.objects.contains_key(&payment) {
            let words = format!("No such payment_intent: '{payment}'");
            return error(400, "resource_missing", &words);
        }
        let left = self.unrefunded(&payment);
        let amount = cents(form, "amount").unwrap_or(left);
        if left == 0 {
            return error(
                400,
                "charge_already_refunded",
                "Charge has already been refunded.",
            );
        }
        if amount > left || amount < 1 {
            let words = "Refund amount is greater than unrefunded amount on charge";
            return error(400, "", words);
        }
        if self.is_disputed(&payment) {
            return error(400, "charge_disputed", "The charge has been charged back.");
        }
        let id = self.refund(&payment, amount, &metadata(form, "metadata"));
        self.find(&id)
    }

    fn make_account(&mut self) -> Answer {
        let id = self.id("acct");
        let account = objects::account(&id, self.now());
        self.keep("account", &id, account)
    }

    fn make_account_link(&mut self, form: &Form) -> Answer {
        let account = form.get("account").cloned().unwrap_or_default();
        if !self.objects.contains_key(&account) {
            return error(400, "account_invalid", &format!("No such account: '{account}'"));
        }
        (200, objects::account_link(&account, self.now()))
    }

    fn make_transfer(&mut self, form: &Form) -> Answer {
        let account = form.get("destination").cloned().unwrap_or_default();
        let amount = cents(form, "amount").unwrap_or_default();
        let Some(object) = self.objects.get(&account) else {
            return error(
                400,
                "resource_missing",
                &format!("No such destination: '{account}'"),
            );
        };
        if object["capabilities"]["transfers"] != "active" {
            let words = "Your destination account needs to have the transfers capability enabled.";
            return error(400, "insufficient_capabilities_for_transfer", words);
        }
        if let Some(balance) = &mut self.balance {
            if *balance < amount {
                return error(
                    400,
                    "balance_insufficient",
                    "You have insufficient available funds.",
                );
            }
            *balance -= amount;
        }
        let id = self.id("tr");
        let transfer = objects::transfer(&id, form, amount, self.now(), self.livemode);
        self.keep("transfer", &id, transfer)
    }
}
