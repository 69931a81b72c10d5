//! Channels between threads.

use std::collections::VecDeque;
use std::sync::Arc;

use super::sync::{Condvar, Mutex};

struct Queue<T> {
    items: Mutex<Items<T>>,
    capacity: usize,
    filled: Condvar,
    emptied: Condvar,
}

struct Items<T> {
    queue: VecDeque<T>,
    senders: usize,
    receivers: usize,
}

/// A channel that holds up to `capacity` values, at least one; any number may send and receive.
pub fn channel<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let items = Items { queue: VecDeque::new(), senders: 1, receivers: 1 };
    let queue = Arc::new(Queue {
        items: Mutex::new(items),
        capacity: capacity.max(1),
        filled: Condvar::new(),
        emptied: Condvar::new(),
    });
    (Sender { queue: queue.clone() }, Receiver { queue })
}

/// The end of a channel into which values go.
pub struct Sender<T> {
    queue: Arc<Queue<T>>,
}

/// The end of a channel from which values come.
pub struct Receiver<T> {
    queue: Arc<Queue<T>>,
}

impl<T> Sender<T> {
    /// Waits until there is room. The value comes back where nobody will receive it.
    pub fn send(&self, value: T) -> Result<(), T> {
        let mut items = self.queue.emptied.wait_while(self.queue.items.lock(), |items| {
            items.receivers > 0 && items.queue.len() >= self.queue.capacity
        });
        if items.receivers == 0 {
            return Err(value);
        }
        items.queue.push_back(value);
        drop(items);
        self.queue.filled.notify_one();
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Waits for a value; `None` where none will come any more.
    pub fn receive(&self) -> Option<T> {
        let mut items = self
            .queue
            .filled
            .wait_while(self.queue.items.lock(), |items| items.senders > 0 && items.queue.is_empty());
        let value = items.queue.pop_front();
        drop(items);
        if value.is_some() {
            self.queue.emptied.notify_one();
        }
        value
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.queue.items.lock().senders += 1;
        Sender { queue: self.queue.clone() }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.queue.items.lock().receivers += 1;
        Receiver { queue: self.queue.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut items = self.queue.items.lock();
        items.senders -= 1;
        let last = items.senders == 0;
        drop(items);
        if last {
            self.queue.filled.notify_all();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut items = self.queue.items.lock();
        items.receivers -= 1;
        let last = items.receivers == 0;
        drop(items);
        if last {
            self.queue.emptied.notify_all();
        }
    }
}
