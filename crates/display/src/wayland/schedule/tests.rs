//! The schedule with a simulated compositor.

use super::*;

const INTERVAL: Duration = Duration::from_millis(10);
const MODE: Mode = Mode { width: 1, height: 1, refresh_mhz: 100_000 };

/// A compositor with a refresh every 10 ms, which composes some time before each.
struct Compositor {
    schedule: Schedule,
    start: Instant,
    /// Time in microseconds.
    now: u64,
    /// Time before a refresh at which it composes, in microseconds.
    ahead: u64,
    /// What the counter of its screen is at refresh 0. `None` if it has none.
    counter: Option<u64>,
    /// Serial number of the commit that it has not composed with.
    current: Option<u64>,
    /// Serial number of the commit that it has composed with.
    composed: Option<u64>,
    is_hidden: bool,
    shown: Vec<Shown>,
    ticks: usize,
}

impl Compositor {
    fn new(ahead: u64, counter: Option<u64>) -> Self {
        let (schedule, start) = (Schedule::new(MODE), Instant::now());
        let (current, composed, shown) = (None, None, Vec::new());
        Self { schedule, start, now: 1, ahead, counter, current, composed, is_hidden: false, shown, ticks: 0 }
    }

    fn now(&self) -> Instant {
        self.start + Duration::from_micros(self.now)
    }

    /// Makes the commits that are due, as after each report and at each timeout.
    fn advance(&mut self) {
        while let Some(Action { serial, buffer }) = self.schedule.next(self.now()) {
            self.ticks += usize::from(buffer.is_none());
            if let Some(before) = self.current.replace(serial) {
                assert_eq!(self.schedule.discarded(before), None, "a buffer was replaced");
            }
        }
    }

    /// Lets a number of microseconds pass.
    fn run(&mut self, time: u64) {
        for _ in 0..time {
            self.now += 1;
            let phase = self.now % 10_000;
            if phase == 10_000 - self.ahead && !self.is_hidden {
                self.composed = self.current.take();
                self.composed.into_iter().for_each(|serial| self.schedule.latched(serial, self.now()));
                self.advance();
            }
            if let Some(serial) = self.composed.take_if(|_| phase == 0) {
                let counter = self.counter.map_or(0, |counter| counter + self.now / 10_000);
                let shown = self.schedule.presented(serial, Duration::from_micros(self.now), counter, self.now());
                self.shown.extend(shown);
                self.advance();
            }
            if self.schedule.timeout(self.now()).is_some_and(|timeout| timeout.is_zero()) {
                self.advance();
            }
        }
    }

    fn present(&mut self, buffer: usize, due: u64) {
        self.schedule.push(buffer, due);
        self.advance();
    }

    fn refreshes(&self) -> Vec<u64> {
        self.shown.iter().map(|shown| shown.refresh).collect()
    }
}

/// All compositors of these tests: composing early or late, with and without a counter.
fn compositors() -> impl Iterator<Item = Compositor> {
    [100, 1_000, 7_000, 9_500].into_iter().flat_map(|ahead| [None, Some(500)].map(|at| Compositor::new(ahead, at)))
}

#[test]
fn waiting_buffers_are_shown_at_their_refreshes() {
    for mut compositor in compositors() {
        compositor.present(0, 0);
        compositor.run(30_000);
        let first = compositor.refreshes()[0];
        let due: Vec<u64> = [6, 7, 9, 30].map(|after| first + after).into();
        due.iter().enumerate().for_each(|(buffer, due)| compositor.present(buffer, *due));
        compositor.run(400_000);
        assert_eq!(compositor.refreshes()[1..], due, "composes {} µs ahead", compositor.ahead);
        // Ticks only shortly before a refresh.
        assert!(compositor.ticks <= 12, "{} ticks", compositor.ticks);
    }
}

#[test]
fn frame_presented_in_the_interval_before_is_not_late() {
    for mut compositor in compositors().filter(|compositor| compositor.ahead <= 7_000) {
        compositor.present(0, 0);
        compositor.run(30_000);
        let mut due = compositor.refreshes()[0] + 6;
        for n in 1..20 {
            // Half an interval after the refresh that is two before its own.
            compositor.run((due - 2 - last_refresh(&compositor)) * 10_000 + 5_000 - compositor.now % 10_000);
            compositor.present(n, due);
            compositor.run(40_000 - compositor.now % 10_000);
            assert_eq!(compositor.refreshes()[n], due, "composes {} µs ahead", compositor.ahead);
            due += 6;
        }
    }
}

/// Returns the number of the refresh that was last.
fn last_refresh(compositor: &Compositor) -> u64 {
    compositor.counter.unwrap_or(0) + compositor.now / 10_000
}

#[test]
fn hidden_window_causes_no_commits() {
    for mut compositor in compositors() {
        compositor.present(0, 0);
        compositor.run(30_000);
        let first = compositor.refreshes()[0];
        compositor.is_hidden = true;
        (1..4).for_each(|n| compositor.present(n, first + 5 * n as u64));
        compositor.run(1_000_000);
        assert!(compositor.ticks <= 5, "{} ticks", compositor.ticks);
        assert_eq!(compositor.schedule.timeout(compositor.now()), None);
        compositor.is_hidden = false;
        compositor.run(100_000);
        let shown = compositor.refreshes();
        assert!(shown.len() == 4 && shown.is_sorted_by(|before, after| before < after), "{shown:?}");
    }
}

#[test]
fn tick_that_replaces_a_buffer_reports_it() {
    let mut schedule = Schedule::new(MODE);
    let now = Instant::now();
    assert_eq!(schedule.tick(now), None, "no buffer yet");
    schedule.push(2, 0);
    let buffer = schedule.next(now).unwrap();
    let tick = schedule.tick(now).unwrap();
    assert_eq!((buffer.buffer, tick.buffer), (Some(2), None));
    assert_eq!(schedule.discarded(buffer.serial), None);
    let shown = schedule.presented(tick.serial, INTERVAL, 0, now).unwrap();
    assert_eq!((shown.buffer, shown.refresh), (2, 1));
    assert_eq!(schedule.presented(tick.serial, INTERVAL, 0, now), None);
}

#[test]
fn discarded_buffer_is_returned_once_and_delays_the_next() {
    let mut schedule = Schedule::new(MODE);
    let now = Instant::now();
    schedule.push(0, 0);
    schedule.push(1, 0);
    let Action { serial, .. } = schedule.next(now).unwrap();
    assert_eq!(schedule.next(now), None);
    assert_eq!((schedule.discarded(serial), schedule.discarded(serial)), (Some(0), None));
    assert_eq!((schedule.next(now), schedule.timeout(now)), (None, Some(INTERVAL)));
    assert_eq!(schedule.next(now + INTERVAL).unwrap().buffer, Some(1));
}

#[test]
fn compositor_that_reports_no_refresh_is_recognized() {
    let mut schedule = Schedule::new(MODE);
    let now = Instant::now();
    schedule.push(0, 0);
    schedule.push(1, 0);
    let Action { serial, .. } = schedule.next(now).unwrap();
    schedule.latched(serial, now);
    assert_eq!((schedule.next(now), schedule.silent(now), schedule.timeout(now)), (None, None, Some(SILENCE)));
    assert_eq!(schedule.silent(now + SILENCE), Some(vec![(serial, now)]));
}

#[test]
fn commits_without_a_report_are_dropped_at_a_later_one() {
    let mut schedule = Schedule::new(MODE);
    let mut now = Instant::now();
    let mut serials = Vec::new();
    for buffer in 0..2 {
        schedule.push(buffer, 0);
        serials.push(schedule.next(now).unwrap().serial);
        serials.push(schedule.tick(now).unwrap().serial);
        assert_eq!(schedule.unreported(serials[0]), Vec::<usize>::new());
        if buffer == 0 {
            schedule.presented(serials[0], INTERVAL, 0, now);
        }
        now += INTERVAL;
    }
    schedule.latched(serials[3], now);
    assert_eq!(schedule.unreported(serials[3]), [1]);
    assert!(schedule.presented(serials[3], INTERVAL * 2, 0, now).is_none());
    assert!(schedule.commits.is_empty());
}
