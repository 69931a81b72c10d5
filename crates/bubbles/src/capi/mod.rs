//! What C programs call: `include/coplace/bubbles.h` says what each does.

mod bubbles;
mod threads;
mod waiting;

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::hierarchy::PRIORITIES;
use crate::runtime::{self, Config, Thread};
use crate::schedulers;

type Record = &'static Thread;

/// An address that a program hands from thread to thread.
#[derive(Clone, Copy)]
struct Address(*mut c_void);

// SAFETY: what is behind it is the program's business.
unsafe impl Send for Address {}

impl Address {
    fn get(self) -> *mut c_void {
        self.0
    }
}

/// # Safety
///
/// `text` is null or a C string that outlives the result.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    // SAFETY: as promised.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("?"))
}

fn priority(priority: c_int) -> Option<u8> {
    u8::try_from(priority).ok().filter(|&priority| usize::from(priority) < PRIORITIES)
}

/// # Safety
///
/// `scheduler` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coplace_run(
    scheduler: *const c_char,
    main: extern "C" fn(*mut c_void),
    argument: *mut c_void,
) -> c_int {
    // SAFETY: as promised.
    let name = unsafe { text(scheduler) }.unwrap_or("burst");
    let Some(scheduler) = schedulers::by_name(name) else { return libc::EINVAL };
    let argument = Address(argument);
    match runtime::run(&Config { scheduler, ..Config::default() }, move || main(argument.get())) {
        Ok(()) => 0,
        Err(_) => libc::EBUSY,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_processors() -> usize {
    runtime::processors()
}

#[unsafe(no_mangle)]
pub extern "C" fn coplace_processor() -> usize {
    runtime::processor()
}

/// # Safety
///
/// `processors` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coplace_set_processors(processors: *const usize, count: usize) -> c_int {
    if count == 0 {
        return libc::EINVAL;
    }
    // SAFETY: as promised.
    let wanted = unsafe { std::slice::from_raw_parts(processors, count) };
    if runtime::set_processors(wanted) { 0 } else { libc::EINVAL }
}

/// # Safety
///
/// `scheduler` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coplace_use_scheduler(scheduler: *const c_char) -> c_int {
    // SAFETY: as promised.
    match unsafe { text(scheduler) }.and_then(schedulers::by_name) {
        Some(scheduler) => {
            runtime::use_scheduler(scheduler);
            0
        }
        None => libc::EINVAL,
    }
}

/// # Safety
///
/// `text` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coplace_placement(text: *mut c_char, size: usize) -> usize {
    let placement = runtime::placement();
    if size > 0 {
        let count = placement.len().min(size - 1);
        // SAFETY: as promised.
        unsafe {
            text.copy_from_nonoverlapping(placement.as_ptr().cast(), count);
            *text.add(count) = 0;
        }
    }
    placement.len()
}
