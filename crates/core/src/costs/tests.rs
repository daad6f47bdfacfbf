//! Exports as providers write them, and what is refused of them.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::format_collect,
    reason = "the expected sums are small, and files are put together in words"
)]

use proptest::prelude::*;

use super::*;

fn days(text: &str) -> Vec<(String, i64)> {
    read_costs(text.as_bytes())
        .unwrap()
        .into_iter()
        .map(|cost| (cost.day.to_string(), cost.usd.get()))
        .collect()
}

fn refused(text: &str) -> String {
    read_costs(text.as_bytes()).unwrap_err().to_string()
}

fn expected(days: &[(&str, i64)]) -> Vec<(String, i64)> {
    days.iter().map(|(day, usd)| ((*day).to_owned(), *usd)).collect()
}

#[test]
fn a_table_is_summed_by_day() {
    let text = "\u{feff}Date, Model ,cost_usd,currency\r\n\
                2026-11-02,\"a, \"\"b\"\"\",1.5,USD\r\n\
                2026-11-01,a,0.1,usd\r\n\
                2026-11-01T10:00:00Z,\"b\nc\",2e-1,\r\n\
                2026-11-02,credit,-0.5,USD\r\n";
    assert_eq!(
        days(text),
        expected(&[("2026-11-01", 300_000), ("2026-11-02", 1_000_000)])
    );
    assert_eq!(
        days("usage_date,total_cost\n2026-11-01,1\n\n2026-11-01,1"),
        expected(&[("2026-11-01", 2_000_000)])
    );
    assert_eq!(
        days("start_date,end_date,amount\n2026-11-01,2026-11-02,1\n2026-11-02,2026-11-02,3\n2026-11-03,,0\n"),
        expected(&[
            ("2026-11-01", 1_000_000),
            ("2026-11-02", 3_000_000),
            ("2026-11-03", 0)
        ])
    );
}

#[test]
fn amounts_are_exact_and_a_day_is_rounded_once() {
    // Each row alone would round to nothing.
    let rows = "2026-11-01,0.0000004\n".repeat(5);
    assert_eq!(
        days(&format!("day,amount\n{rows}")),
        expected(&[("2026-11-01", 2)])
    );
    for (text, micros) in [
        ("0.0000005", 1),
        ("0.00000049", 0),
        ("0.1e-5", 1),
        ("6e-2", 60_000),
        ("0.30000000000000004", 300_000),
        ("9007199254740993", 0),
        ("9223372036854.775807", i64::MAX),
    ] {
        let file = format!("day,amount\n2026-11-01,{text}\n");
        if micros == 0 && text.starts_with('9') {
            assert!(refused(&file).contains("too large"), "{text}");
        } else {
            assert_eq!(days(&file), expected(&[("2026-11-01", micros)]), "{text}");
        }
    }
    let both = "day,amount\n2026-11-01,0.1\n2026-11-01,0.2\n2026-11-01,-0.3\n";
    assert_eq!(days(both), expected(&[("2026-11-01", 0)]));
}

#[test]
fn rows_of_json_are_summed_by_day() {
    let lines = "{\"date\":\"2026-11-01\",\"cost\":0.06,\"model\":{\"a\":[1]}}\n\n\
                 {\"day\":\"2026-11-02\",\"amount_usd\":\"1.5\",\"currency\":\"USD\"}\n\
                 {\"date\":\"2026-11-01\",\"cost\":4e-2,\"currency\":null}";
    let sums = expected(&[("2026-11-01", 100_000), ("2026-11-02", 1_500_000)]);
    assert_eq!(days(lines), sums);
    let array = format!("[{}]", lines.replace("\n\n", ",").replace("}\n{", "},{"));
    assert_eq!(days(&array), sums);
}

#[test]
fn pages_of_openai_are_summed_by_day() {
    let page = r#"{"object":"page","data":[
        {"object":"bucket","start_time":1793491200,"end_time":1793577600,"results":[
            {"object":"organization.costs.result","amount":{"value":0.06,"currency":"usd"},"line_item":null,"project_id":null},
            {"object":"organization.costs.result","amount":{"value":"1.25e-3","currency":"usd"},"line_item":"x"}]},
        {"object":"bucket","start_time":1793577600,"end_time":1793664000,"results":[]}],
        "has_more":false,"next_page":null}"#;
    let sums = expected(&[("2026-11-01", 61_250), ("2026-11-02", 0)]);
    assert_eq!(days(page), sums);
    let second = page
        .replace("1793664000", "1793750400")
        .replace("1793577600", "1793664000")
        .replace("1793491200", "1793577600");
    assert_eq!(
        days(&format!("{page}\n{second}")),
        expected(&[("2026-11-01", 61_250), ("2026-11-02", 61_250), ("2026-11-03", 0)])
    );
    let month = page.replace("1793577600,\"results\":[\n", "1796083200,\"results\":[\n");
    assert!(
        refused(&month).starts_with("line 2: end_time: "),
        "{}",
        refused(&month)
    );
    let euro = page.replace("\"usd\"},\"line_item\":\"x\"", "\"eur\"},\"line_item\":\"x\"");
    assert!(
        refused(&euro).starts_with("line 4: amount.currency: "),
        "{}",
        refused(&euro)
    );
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (text, message) in [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        ("day,amount\n", "there is no row in it"),
        ("[]", "there is no row in it"),
        (
            "day,price\n2026-11-01,1\n",
            "line 1: there is no column cost, cost_usd, amount, amount_usd, total_cost",
        ),
        (
            "model,amount\nx,1\n",
            "line 1: there is no column date, day, start_date, usage_date",
        ),
        (
            "day,amount,cost\n2026-11-01,1,2\n",
            "line 1: amount: cost is there too: keep one of them",
        ),
        (
            "day,amount\n2026-11-01,1\n2026-11-01\n",
            "line 3: 1 cells under 2 columns",
        ),
        (
            "day,amount\n2026-11-01,1\n2026-13-01,1\n",
            "line 3: day: \"2026-13-01\" is no date: write 2026-11-01",
        ),
        (
            "day,amount,currency\n2026-11-01,1,EUR\n",
            "line 2: currency: only US dollars can be compared",
        ),
        (
            "day,amount\n2026-11-01,1\n2026-11-02,-1\n",
            "2026-11-02: the day's sum is below zero",
        ),
        (
            "start_date,end_date,cost\n2026-11-01,2026-11-30,1\n",
            "line 2: end_date: the row is about more than one day",
        ),
        (
            "{\"day\":\"2026-11-01\",\"cost\":1}\n{\"day\":\"2026-11-01\",\"cost\":true}\n",
            "line 2: cost: \"true\" is no amount: write plain US dollars such as 12.5 or -0.25",
        ),
        (
            "{\"day\":\"2026-11-01\",\"cost\":1,\"cost\":2}",
            "line 1: cost: stands there twice",
        ),
        (
            "{\"day\":\"2026-11-01\",\"cost\":1,\"amount\":2}",
            "line 1: cost: amount is there too: keep one of them",
        ),
        ("{\"day\":20261101,\"cost\":1}", "line 1: day: must be a string"),
        (
            "{\"cost\":1}",
            "line 1: there is no member date, day, start_date, usage_date",
        ),
    ] {
        assert_eq!(refused(text), message, "{text:?}");
    }
    for amount in [
        "",
        "$1",
        "1,5",
        "1.",
        ".5",
        "+1",
        "--1",
        "NaN",
        "0x1",
        "1 000",
        "1e999999999",
    ] {
        let message = refused(&format!("day,amount\n2026-11-01,\"{amount}\"\n"));
        assert!(message.starts_with("line 2: amount: "), "{amount}: {message}");
    }
    for broken in [
        "{",
        "[1]",
        "{\"day\":}",
        "[{\"day\":\"2026-11-01\",\"cost\":1}",
        "{\"data\":[1]}",
        "{}x",
    ] {
        assert!(
            refused(broken).starts_with("line 1: "),
            "{broken}: {}",
            refused(broken)
        );
    }
    assert!(read_costs(b"day,amount\n\xff").is_err());
    let deep = "[".repeat(100_000);
    assert!(read_costs(deep.as_bytes()).is_err());
    let many: String = (0..=MAX_DAYS)
        .map(|day| format!("{},1\n", Day::new(i64::try_from(day).unwrap())))
        .collect();
    assert!(refused(&format!("day,amount\n{many}")).contains("more than 4000 days"));
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        drop(read_costs(text.as_bytes()));
        drop(read_costs(format!("day,amount\n{text}").as_bytes()));
        drop(read_costs(format!("[{{\"day\":\"2026-11-01\",\"cost\":{text}").as_bytes()));
    }

    #[test]
    fn every_form_says_the_same(amounts in prop::collection::vec((0_i64..40, 0_i64..2_000_000_000), 1..40)) {
        let rows: Vec<(Day, String)> = amounts
            .iter()
            .map(|(day, micros)| (Day::new(20_000 + day), Micros::new(*micros).to_string()))
            .collect();
        let csv: String = rows.iter().map(|(day, usd)| format!("{day},{usd}\n")).collect();
        let json: String = rows
            .iter()
            .map(|(day, usd)| format!("{{\"date\":\"{day}\",\"cost\":{usd}}}\n"))
            .collect();
        let buckets: Vec<String> = rows
            .iter()
            .map(|(day, usd)| {
                let start = day.start().millis() / 1000;
                format!(
                    "{{\"start_time\":{start},\"end_time\":{},\"results\":[{{\"amount\":{{\"value\":{usd},\"currency\":\"usd\"}}}}]}}",
                    start + 86_400
                )
            })
            .collect();
        let page = format!("{{\"object\":\"page\",\"data\":[{}]}}", buckets.join(","));
        let from_csv = days(&format!("date,cost\n{csv}"));
        prop_assert_eq!(&from_csv, &days(&json));
        prop_assert_eq!(&from_csv, &days(&page));
        let total: i64 = from_csv.iter().map(|(_, usd)| usd).sum();
        prop_assert_eq!(total, amounts.iter().map(|(_, usd)| usd).sum::<i64>());
    }
}
