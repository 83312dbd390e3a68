//! Recorder process for the tests in `crates/store/tests/integration`, which kill it.
//!
//! ```sh
//! record_until_killed PATH ROWS plain|durable     # shots, some of them partial or lost
//! record_until_killed PATH ROWS whole             # complete shots, and losses
//! record_until_killed PATH ROWS finish EVENTS     # complete events; finishes on a line from standard input
//! ```

#[path = "../tests/integration/common/shots.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod shots;

use shotline_store::shot::{Loss, RunCounters};
use shotline_wire::shot::{DropCause, Packing};
use shots::{Recording, run, shot, small};
use std::path::PathBuf;
use std::time::Duration;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [path, rows, kind, more @ ..] = arguments.as_slice() else { panic!("PATH ROWS KIND") };
    let g = small(Packing::Packed12);
    let mut recording = Recording::of(tempfile::tempdir().unwrap(), PathBuf::from(path), run(&[g, g]), |config| {
        config.rows = rows.parse().unwrap();
        config.durable = kind != "plain" && kind != "finish";
        config.commit_every = Duration::from_micros(300);
        config.commit_rows = 7;
    });
    if kind == "finish" {
        (0..more[0].parse().unwrap()).for_each(|number| recording.whole(number));
        recording.settle();
        println!("recorded");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        recording.finish(&RunCounters::default());
        return;
    }
    for number in 0.. {
        match number % 11 {
            3 if kind != "whole" => {
                recording.event(number, |link, buffer| (link == 1).then(|| shot(buffer, 8, number, g, |_| true)));
            }
            5 if kind != "whole" => {
                recording.event(number, |link, buffer| Some(shot(buffer, 7 + link, number, g, |packet| packet != 1)));
            }
            7 => {
                for stream in [7, 8] {
                    recording.recorder.loss(Loss { stream, cause: DropCause::NoBuffer, first: number, count: 1 });
                }
            }
            _ => recording.whole(number),
        }
    }
}
