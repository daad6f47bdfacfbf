//! `turnpike listen`: a developer's own receiver is told of what happens while it runs.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::hooks::{BURNED, Receiver};
use crate::harness::{Setup, Site, Store, turnpike};
use crate::on_both_stores;

on_both_stores!(
    what_happens_is_forwarded_and_signed_with_a_stable_secret,
    a_wrong_use_says_what_is_wrong,
);

/// A running `turnpike listen --json`.
struct Listening {
    child: Child,
    lines: mpsc::Receiver<Value>,
}

impl Listening {
    fn start(site: &Site, args: &[&str]) -> Self {
        let mut child = turnpike(&site.config, &site.data)
            .arg("listen")
            .args(args)
            .arg("--json")
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || read(output, &send));
        Self { child, lines }
    }

    fn next(&self) -> Value {
        let longest = std::time::Duration::from_secs(20);
        tokio::task::block_in_place(|| self.lines.recv_timeout(longest)).unwrap()
    }

    fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let status = tokio::task::block_in_place(|| self.child.wait()).unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn read(output: ChildStdout, send: &mpsc::Sender<Value>) {
    for line in BufReader::new(output).lines() {
        let value = serde_json::from_str(&line.unwrap()).unwrap();
        if send.send(value).is_err() {
            return;
        }
    }
}

async fn what_happens_is_forwarded_and_signed_with_a_stable_secret(store: Store) {
    let site = Setup::new(store).start().await;
    site.burn().await;
    let receiver = Receiver::start().await;
    let url = receiver.url("/dev");
    let listening = Listening::start(&site, &["--forward-to", &url]);
    let greeting = listening.next();
    assert_eq!(greeting["forwardTo"], url);
    let secret = greeting["secret"].as_str().unwrap().to_owned();
    site.burn().await;
    let lines = [listening.next(), listening.next()];
    let messages = receiver.arrived(2).await;
    for (line, message) in lines.iter().zip(&messages) {
        assert!(message.is_signed_by(&secret));
        assert_eq!(line["eventId"], message.id());
        assert_eq!(line["type"], message.json()["type"]);
        assert_eq!((&line["httpStatus"], &line["error"]), (&200.into(), &Value::Null));
    }
    assert_eq!(
        lines[0]["type"], BURNED,
        "in their order, without what was before"
    );
    listening.stop();

    // A receiver that is away is said to be; and the secret is the same.
    receiver.answers(500, &[], b"no");
    let listening = Listening::start(&site, &["--forward-to", &url, "--type", BURNED]);
    assert_eq!(listening.next()["secret"], secret);
    site.burn().await;
    site.burn().await;
    for _ in 0..2 {
        let line = listening.next();
        assert_eq!(
            (&line["type"], &line["httpStatus"]),
            (&BURNED.into(), &500.into())
        );
    }
    listening.stop();
    // It leaves nothing behind.
    let page = site.event_page("?limit=100").await;
    let events = page["data"].as_array().unwrap();
    assert!(events.iter().all(|event| event["delivery"].is_null()));
}

async fn a_wrong_use_says_what_is_wrong(store: Store) {
    let site = Site::new(store).await;
    for (args, says) in [
        (&["--forward-to", "http://192.168.1.1/x"][..], "forward-to"),
        (&["--forward-to", "nonsense"][..], "forward-to"),
        (
            &[
                "--forward-to",
                "http://localhost:9/",
                "--tenant",
                "0190a0b0-0000-7000-8000-000000000000",
            ][..],
            "no such workspace",
        ),
    ] {
        let output = turnpike(&site.config, &site.data)
            .arg("listen")
            .args(args)
            .output()
            .unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(complaint.contains(says), "{complaint}");
    }
}
