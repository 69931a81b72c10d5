//! Data of which each thread has its own.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::runtime::workers::worker;

static KEYS: AtomicUsize = AtomicUsize::new(0);

/// A value of which each thread makes its own at its first use, and drops it at its end.
///
/// ```
/// use coplace_bubbles::{Config, Local, run, spawn};
/// static COUNT: Local<std::cell::Cell<u32>> = Local::new(|| std::cell::Cell::new(0));
/// run(&Config::default(), || {
///     COUNT.with(|count| count.set(5));
///     let other = spawn(|| COUNT.with(|count| count.get()));
///     assert_eq!(other.join().unwrap(), 0);
/// })
/// .unwrap();
/// ```
pub struct Local<T: 'static> {
    key: OnceLock<usize>,
    make: fn() -> T,
    values: PhantomData<fn() -> T>,
}

impl<T> Local<T> {
    /// `make` is called in each thread that uses the value, at its first use there.
    pub const fn new(make: fn() -> T) -> Local<T> {
        Local { key: OnceLock::new(), make, values: PhantomData }
    }

    /// Calls `f` with the value of the thread that runs.
    ///
    /// # Panics
    ///
    /// Outside threads of [`run`](crate::run).
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        let key = *self.key.get_or_init(|| KEYS.fetch_add(1, Ordering::Relaxed));
        let values = &worker::current().values;
        // SAFETY: the thread runs.
        let value = unsafe { values.get(key) }.unwrap_or_else(|| {
            let made: Box<dyn Any> = Box::new((self.make)());
            // SAFETY: as above.
            unsafe {
                drop(values.set(key, made));
                values.get(key).expect("it was made above")
            }
        });
        // SAFETY: it is dropped at the thread's end: nobody else sets the value of this key.
        let value = unsafe { &*value };
        f(value.downcast_ref::<T>().expect("a key has one type"))
    }
}

/// A number under which each thread may have one value, for the C interface.
#[derive(Clone, Copy)]
pub(crate) struct Key(pub usize);

impl Key {
    pub fn new() -> Key {
        Key(KEYS.fetch_add(1, Ordering::Relaxed))
    }

    /// What `f` takes from the running thread's value, if it has one of this type.
    pub fn get<T: Any, R>(self, f: impl FnOnce(&T) -> R) -> Option<R> {
        // SAFETY: the thread runs, and `f` has the value only for as long as it takes.
        let value = unsafe { &*worker::current().values.get(self.0)? };
        value.downcast_ref::<T>().map(f)
    }

    /// Gives the running thread a value; the one it had is dropped.
    pub fn set(self, value: Box<dyn Any>) {
        // SAFETY: the thread runs.
        drop(unsafe { worker::current().values.set(self.0, value) });
    }
}
