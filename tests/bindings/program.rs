// A Rust program, without crates, over a binding: a guard for the language's threads, a step, a function from a closure.

use std::ffi::{c_char, c_void, CStr};
use std::thread;

type Tensor = *mut c_void;
type Callback = extern "C" fn(*mut c_void, *const Tensor, u64, *mut Tensor, u64) -> i32;

#[repr(C)]
struct Optimizer {
    size: u64,
    kind: i32,
    switches: [i32; 3],
    lr: f64,
    others: [f64; 11],
}

extern "C" {
    fn at_linspace(start: f64, end: f64, steps: i64) -> Tensor;
    fn at_set_requires_grad(t: Tensor, requires_grad: i32);
    fn at_mul(a: Tensor, b: Tensor) -> Tensor;
    fn at_sin(a: Tensor) -> Tensor;
    fn at_sum(a: Tensor) -> Tensor;
    fn at_backward(t: Tensor, keep_graph: i32, create_graph: i32);
    fn at_grad(t: Tensor) -> Tensor;
    fn at_double_value_at(t: Tensor, index: i64) -> f64;
    fn at_free(t: Tensor);

    fn hindcast_abi_version() -> u32;
    fn hindcast_last_error() -> *const c_char;
    fn hindcast_enable_process(options: *const c_void, guard: *mut u64) -> i32;
    fn hindcast_disable(guard: u64) -> i32;
    fn hindcast_report(text: *mut *mut c_char) -> i32;
    fn hindcast_free_text(text: *mut c_char);
    fn hindcast_optimizer_init(optimizer: *mut Optimizer, size: u64, kind: i32) -> i32;
    fn hindcast_step_create(optimizer: *const Optimizer, parameters: *const Tensor, count: u64, step: *mut u64) -> i32;
    fn hindcast_step_run(step: u64) -> i32;
    fn hindcast_step_destroy(step: u64) -> i32;
    fn hindcast_function_create(callback: Callback, user_data: *mut c_void, release: Option<extern "C" fn(*mut c_void)>,
                                output_count: u64, options: *const c_void, function: *mut u64) -> i32;
    fn hindcast_function_call(function: u64, facts: *const c_char, inputs: *const Tensor, input_count: u64, outputs: *mut Tensor,
                              output_count: u64) -> i32;
    fn hindcast_function_destroy(function: u64) -> i32;
}

fn check(status: i32) {
    assert_eq!(status, 0, "{}", unsafe { CStr::from_ptr(hindcast_last_error()) }.to_string_lossy());
}
fn assert_near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-5, "{} is not {}", a, b);
}

fn train() {
    for _ in 0..10 {
        unsafe {
            let x = at_linspace(0.0, 1.0, 4);
            at_set_requires_grad(x, 1);
            let y = at_sin(x);
            let loss = at_sum(y);
            at_backward(loss, 0, 0);
            let gradient = at_grad(x);
            assert_near(at_double_value_at(gradient, 3), 1f64.cos());
            [gradient, loss, y, x].iter().for_each(|t| at_free(*t));
        }
    }
}

// A closure as the callback's user data.
type Closure = Box<dyn Fn(&[Tensor]) -> Tensor>;
extern "C" fn call(closure: *mut c_void, inputs: *const Tensor, input_count: u64, outputs: *mut Tensor, _: u64) -> i32 {
    unsafe {
        let inputs = std::slice::from_raw_parts(inputs, input_count as usize);
        *outputs = (*(closure as *mut Closure))(inputs);
    }
    0
}
extern "C" fn release(closure: *mut c_void) {
    drop(unsafe { Box::from_raw(closure as *mut Closure) });
}

fn test_function() {
    let closure: Closure = Box::new(|inputs| unsafe { at_mul(inputs[0], inputs[0]) });
    let mut function = 0;
    unsafe {
        let data = Box::into_raw(Box::new(closure)) as *mut c_void;
        check(hindcast_function_create(call, data, Some(release), 1, std::ptr::null(), &mut function));
        let x = at_linspace(0.0, 3.0, 4);
        at_set_requires_grad(x, 1);
        let mut square: Tensor = std::ptr::null_mut();
        for times in 1..4 {
            check(hindcast_function_call(function, std::ptr::null(), &x, 1, &mut square, 1));
            let loss = at_sum(square);
            at_backward(loss, 0, 0);
            let gradient = at_grad(x);
            assert_near(at_double_value_at(gradient, 3), 6.0 * times as f64);
            [gradient, loss, square].iter().for_each(|t| at_free(*t));
        }
        check(hindcast_function_destroy(function));
        at_free(x);
    }
}

fn test_step() {
    unsafe {
        let mut adam: Optimizer = std::mem::zeroed();
        check(hindcast_optimizer_init(&mut adam, std::mem::size_of::<Optimizer>() as u64, 2));
        assert_near(adam.lr, 1e-3);
        adam.lr = 0.25;
        let w = at_linspace(0.0, 1.0, 4);
        at_set_requires_grad(w, 1);
        let mut step = 0;
        check(hindcast_step_create(&adam, &w, 1, &mut step));
        let loss = at_sum(w);
        at_backward(loss, 0, 0);
        check(hindcast_step_run(step));
        assert_near(at_double_value_at(w, 3), 0.75); // Adam's first step is lr, whatever the gradient
        check(hindcast_step_destroy(step));
        assert_eq!(hindcast_step_destroy(step), 1);
        [loss, w].iter().for_each(|t| at_free(*t));
    }
}

fn main() {
    let mut guard = 0;
    unsafe {
        assert_eq!(hindcast_abi_version(), 1);
        check(hindcast_enable_process(std::ptr::null(), &mut guard));
    }
    let threads: Vec<_> = (0..3).map(|_| thread::spawn(train)).collect();
    threads.into_iter().for_each(|one| one.join().unwrap());
    let mut text: *mut c_char = std::ptr::null_mut();
    unsafe {
        check(hindcast_report(&mut text));
        let report = CStr::from_ptr(text).to_str().unwrap();
        assert!(report.lines().any(|line| line.split_whitespace().eq(["taken", "over", "30"])), "{}", report);
        hindcast_free_text(text);
        check(hindcast_disable(guard));
    }
    test_step();
    test_function();
    println!("right");
}
