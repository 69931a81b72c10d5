//! Data of which each thread has its own.

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::worker;

/// A thread's values, by the number of their key.
pub(crate) type Values = Vec<Option<Box<dyn Any>>>;

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
        let thread = worker::current();
        let mut values = thread.locals.get();
        if values.is_null() {
            values = Box::into_raw(Box::default());
            thread.locals.set(values);
        }
        // SAFETY: only the thread itself uses its values, until `drop_all`; a value stays where its box
        // is when the vector grows.
        let value = unsafe {
            if (&*values).get(key).is_none_or(Option::is_none) {
                let made: Box<dyn Any> = Box::new((self.make)());
                if (&*values).len() <= key {
                    (*values).resize_with(key + 1, || None);
                }
                (&mut *values)[key] = Some(made);
            }
            let value: *const dyn Any = &**(&*values)[key].as_ref().expect("it was made above");
            &*value
        };
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
        // SAFETY: only the thread itself uses its values.
        let values = unsafe { worker::current().locals.get().as_ref() }?;
        values.get(self.0)?.as_ref()?.downcast_ref::<T>().map(f)
    }

    /// Gives the running thread a value; the one it had is dropped.
    pub fn set(self, value: Box<dyn Any>) {
        let thread = worker::current();
        if thread.locals.get().is_null() {
            thread.locals.set(Box::into_raw(Box::default()));
        }
        // SAFETY: only the thread itself uses its values.
        let old = unsafe {
            let values = &mut *thread.locals.get();
            if values.len() <= self.0 {
                values.resize_with(self.0 + 1, || None);
            }
            values[self.0].replace(value)
        };
        drop(old);
    }
}

/// Drops a thread's values at its end, by the thread itself.
pub(crate) fn drop_all(values: &Cell<*mut Values>) {
    // Values may make others when they are dropped, a few times.
    for _ in 0..4 {
        let taken = values.replace(ptr::null_mut());
        if taken.is_null() {
            return;
        }
        // SAFETY: it came from `Box::into_raw`.
        drop(unsafe { Box::from_raw(taken) });
    }
}
