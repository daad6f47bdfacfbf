//! What must be true of the books after every command, counted again from the top-ups and the holds.

use super::*;

#[derive(Default)]
struct Sums {
    paid: i64,
    fees: i64,
    bonus: i64,
    debt: i64,
    reasons: BTreeMap<Payer, i64>,
    open: BTreeMap<Payer, [i64; 3]>,
}

impl Bench {
    /// Every broken invariant, in words.
    pub(super) fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut sums = Sums::default();
        for (_, topup) in self.books.topups.iter() {
            count(topup, self, &mut sums, &mut wrong);
        }
        let mut expect = |what: &str, is: i64, should: i64| {
            if is != should {
                wrong.push(format!("{what} is {is} and should be {should}"));
            }
        };
        let all: i128 = self
            .books
            .accounts
            .iter()
            .map(|(_, account)| i128::from(account.posted.get()))
            .sum();
        expect("the sum of the books", i64::try_from(all).unwrap(), 0);
        let funding = self.posted(AccountKind::Funding);
        expect("funding", funding, -sums.paid - self.granted);
        expect("fees", self.posted(AccountKind::Fees), sums.fees);
        expect("bonus", self.posted(AccountKind::Bonus), -sums.bonus);
        expect("receivable", self.posted(AccountKind::Receivable), -sums.debt);
        let payouts = self.books.payouts.iter().map(|(_, payout)| payout);
        let out = payouts.filter(|payout| !payout.state.is_returned());
        let out: i64 = out.map(|payout| payout.amount.get()).sum();
        expect("payouts", self.posted(AccountKind::Payouts), out);
        for (key, account) in self.books.accounts.iter().filter(|(key, _)| key.is_spendable()) {
            let payer = key.owner.clone().map_or(Payer::Pool, Payer::EndUser);
            let fits = 0 <= account.held.get() && account.held <= account.posted;
            expect(&format!("{key} held within posted"), i64::from(fits), 1);
            let reasons = sums.reasons.get(&payer).copied().unwrap_or(0);
            let enough =
                account.reasons() >= reasons && (reasons == 0 || account.status != AccountStatus::Active);
            expect(&format!("{key} frozen for its reasons"), i64::from(enough), 1);
            let idle = account.status != AccountStatus::Frozen || account.reasons() > 0;
            expect(&format!("{key} frozen for nothing"), i64::from(idle), 1);
        }
        for ((_, id), end_user) in self.books.end_users.iter() {
            let payer = Payer::EndUser(id.clone());
            let open = end_user.open;
            let counted = sums.open.get(&payer).copied().unwrap_or_default();
            let stored = [open.topups, open.refunds, open.disputes];
            expect(&format!("open items of {id}"), i64::from(stored == counted), 1);
            if end_user.retired {
                let account = self.account(&payer);
                let nothing = account.posted.is_zero() && account.held.is_zero();
                let over = nothing && account.status == AccountStatus::Retired;
                expect(&format!("{id} is retired and has nothing"), i64::from(over), 1);
            }
        }
        wrong
    }
}

fn count(topup: &Topup, bench: &Bench, sums: &mut Sums, wrong: &mut Vec<String>) {
    let open = sums.open.entry(topup.payer()).or_default();
    open[0] += i64::from(topup.state.is_open());
    let mut unsettled = false;
    let (mut told, mut given) = (0, [0; 3]);
    let mut items = Vec::new();
    for refund in &topup.refunds {
        let pending = refund.state == RefundState::Pending;
        open[1] += i64::from(pending);
        unsettled |= pending;
        let done = refund.state == RefundState::Succeeded;
        items.push((
            done && !refund.parked,
            refund.parts,
            refund.clawed,
            refund.cents,
            refund.froze,
        ));
    }
    for dispute in &topup.disputes {
        let due = dispute.parts.credits.get() + dispute.parts.bonus.get();
        let holds = dispute.state == DisputeState::Open && !dispute.parked;
        if holds && (dispute.held.get() < due) != dispute.froze.is_some() {
            wrong.push(format!(
                "top-up {}: an open dispute freezes for what it does not hold",
                topup.id
            ));
        }
        let pending = matches!(dispute.state, DisputeState::Open | DisputeState::Warning);
        open[2] += i64::from(pending);
        unsettled |= pending;
        let done = dispute.state == DisputeState::Lost;
        items.push((
            done && !dispute.parked,
            dispute.parts,
            dispute.clawed,
            dispute.cents,
            dispute.froze,
        ));
    }
    let spell = bench.account(&topup.holder()).spell();
    for (done, parts, clawed, cents, froze) in items {
        *sums.reasons.entry(topup.holder()).or_default() += i64::from(froze == Some(spell));
        if !done {
            if clawed.is_some() {
                wrong.push(format!("top-up {}: took and is not done", topup.id));
            }
            continue;
        }
        let clawed = clawed.unwrap_or_default();
        if clawed.is_short() != froze.is_some() {
            wrong.push(format!(
                "top-up {}: a debt freezes, and nothing else does",
                topup.id
            ));
        }
        let (taken, short) = (clawed.taken, clawed.short);
        for (at, (part, took)) in [
            (parts.credits, taken.credits.get() + short.credits.get()),
            (parts.bonus, taken.bonus.get() + short.bonus.get()),
            (parts.fee, taken.fee.get() + short.fee.get()),
        ]
        .into_iter()
        .enumerate()
        {
            given[at] += took;
            if part.get() != took {
                wrong.push(format!("top-up {}: took {took} for a part of {part}", topup.id));
            }
        }
        sums.debt += short.credits.get() + short.bonus.get();
        told = cents.max(0).saturating_add(told);
    }
    if !topup.state.is_credited() {
        return;
    }
    let terms = &topup.terms;
    for (took, most) in given.into_iter().zip([terms.credits, terms.bonus, terms.fee]) {
        if took > most.get() {
            wrong.push(format!("top-up {}: took {took} of {most}", topup.id));
        }
    }
    let back = given[0] + given[2];
    if !unsettled && back != told.min(terms.total_cents()) * 10_000 {
        wrong.push(format!(
            "top-up {}: gave {back} back and {told} cents were",
            topup.id
        ));
    }
    sums.paid += terms.total.get() - back;
    sums.fees += terms.fee.get() - given[2];
    sums.bonus += terms.bonus.get() - given[1];
}
