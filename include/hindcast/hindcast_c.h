#ifndef HINDCAST_C_H
#define HINDCAST_C_H
/*
 * hindcast for other languages: a C API over the tensors of an existing LibTorch binding. C99 and C++.
 *
 * Tensors. A `void*` here is an `at::Tensor*`: what tch-rs, TorchSharp, DJL, JavaCPP and AOTInductor pass around. hindcast borrows tensors
 * that are passed to it for the time of the call. A tensor that it returns is a new `at::Tensor`, which the caller frees as its binding
 * frees its own tensors (`at_free`, `THSTensor_dispose`: C++'s `delete`).
 *
 * Errors. A function that returns int32_t returns HINDCAST_OK or an error code; hindcast_last_error() then has the message. A function that
 * failed has changed nothing, and its output parameters are 0, unless its comment says otherwise. No C++ exception leaves a function.
 *
 * Handles. Guards, steps and functions are numbers, never 0, and no number is used twice. So using a destroyed handle
 * returns HINDCAST_INVALID_ARGUMENT.
 *
 * Threads. Every function may be called from any thread, unless its comment says otherwise. An object that one thread destroys while
 * another uses it is freed when that call is done.
 *
 * Structs begin with their size, which their _init function writes. Later versions add fields at the end, where 0 means the old behaviour.
 */

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define HINDCAST_C_API __attribute__((visibility("default")))
#else
#define HINDCAST_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Results of functions. */
#define HINDCAST_OK 0
#define HINDCAST_INVALID_ARGUMENT 1 /* what the caller gave: a null pointer, a bad option, an unknown handle */
#define HINDCAST_FAILED 2           /* LibTorch, a callback or the system refused */

/* -- versions and errors -- */

/* Returns 1. No function changes its meaning under the same number; new ones may be added. */
HINDCAST_C_API uint32_t hindcast_abi_version(void);
/* The LibTorch version that this library is built for, such as "2.11.0". The text lives as long as the process. */
HINDCAST_C_API const char* hindcast_libtorch_version(void);
/* The error message of the last failed call on this thread; "" before. Valid until the next call on this thread fails. Never NULL. */
HINDCAST_C_API const char* hindcast_last_error(void);
/* Frees a text that a function returned. NULL is allowed. */
HINDCAST_C_API void hindcast_free_text(char* text);

/* -- backwards -- */

#define HINDCAST_COMPILER_DEFAULT 0 /* fused, or what HINDCAST_COMPILER names in the environment */
#define HINDCAST_COMPILER_FUSED 1   /* kernels; gradients differ from LibTorch's by rounding */
#define HINDCAST_COMPILER_EAGER 2   /* ATen, operator by operator: LibTorch's bits */
#define HINDCAST_COMPILER_FUSED_THROUGH_ATEN 3

#define HINDCAST_DYNAMIC_AUTOMATIC 0 /* sizes become dynamic when they first change */
#define HINDCAST_DYNAMIC_NEVER 1
#define HINDCAST_DYNAMIC_INFERRED 2 /* for functions only */

/* docs/options.md describes each. Except for the first two, int32_t fields are switches: 0 is off, any other value is on. */
typedef struct hindcast_options {
  uint64_t size;
  int32_t compiler; /* HINDCAST_COMPILER_ */
  int32_t dynamic;  /* HINDCAST_DYNAMIC_ */
  uint64_t limit;   /* captures per structure */
  uint64_t cache_size;
  uint64_t cache_bytes;
  uint64_t cuda_graph_bytes;
  int32_t back_off;
  int32_t deterministic;
  int32_t async;
  int32_t verify;
  int32_t nan_guard;
  int32_t cuda_graphs;
  int32_t require_cuda_graph;
  int32_t enabled; /* 0: LibTorch's engine runs everything in this guard's scope */
} hindcast_options;

/* Writes the defaults. `size`: sizeof(hindcast_options). */
HINDCAST_C_API int32_t hindcast_options_init(hindcast_options* options, uint64_t size);

/* Takes over backward() and grad() on this thread until hindcast_disable(). `options`: NULL for the defaults. Guards of a thread nest, and
 * the innermost wins. End a guard before its thread ends. Where a runtime moves code between threads (goroutines, .NET tasks), use
 * hindcast_enable_process(). */
HINDCAST_C_API int32_t hindcast_enable(const hindcast_options* options, uint64_t* guard);
/* The same for all threads that have no guard of their own, including later ones. */
HINDCAST_C_API int32_t hindcast_enable_process(const hindcast_options* options, uint64_t* guard);
/* Ends a guard. A guard of hindcast_enable() must be ended on the thread that made it; elsewhere (in a finalizer) this returns
 * HINDCAST_INVALID_ARGUMENT, and the guard stays. Backwards that are running finish as they began. */
HINDCAST_C_API int32_t hindcast_disable(uint64_t guard);
/* 1 if a backward that starts now on this thread would be captured or replayed, else 0. */
HINDCAST_C_API int32_t hindcast_active(void);

/* A report on this process, for people. Free the text with hindcast_free_text(). */
HINDCAST_C_API int32_t hindcast_report(char** text);
/* The same as a JSON object: counters by name, as in hindcast::Stats, and maps from reasons to counts. */
HINDCAST_C_API int32_t hindcast_stats_json(char** text);
/* Returns when all graphs that wait for kernels have them or have failed to compile. */
HINDCAST_C_API int32_t hindcast_wait(void);
/* Forgets all captured graphs and zeroes the counters. */
HINDCAST_C_API int32_t hindcast_reset(void);
/* Frees cached memory. `bytes` (may be NULL): how much of it was returned to LibTorch's allocators. */
HINDCAST_C_API int32_t hindcast_trim(uint64_t* bytes);

/* -- the optimizer's step, as kernels (docs/training.md) -- */

#define HINDCAST_SGD 1
#define HINDCAST_ADAM 2
#define HINDCAST_ADAMW 3
#define HINDCAST_RMSPROP 4
#define HINDCAST_ADAGRAD 5

/* A kind of optimizer and its hyperparameters; a kind reads only its own fields. */
typedef struct hindcast_optimizer {
  uint64_t size;
  int32_t kind;                     /* HINDCAST_SGD to HINDCAST_ADAGRAD */
  int32_t nesterov;                 /* SGD */
  int32_t amsgrad;                  /* Adam, AdamW */
  int32_t centered;                 /* RMSprop */
  double lr;                        /* all */
  double weight_decay;              /* all */
  double momentum;                  /* SGD, RMSprop */
  double dampening;                 /* SGD */
  double beta1;                     /* Adam, AdamW */
  double beta2;                     /* Adam, AdamW */
  double eps;                       /* all but SGD */
  double alpha;                     /* RMSprop */
  double lr_decay;                  /* Adagrad */
  double initial_accumulator_value; /* Adagrad */
  double clip_max_norm;             /* 0: gradients are not clipped */
  double clip_norm_type;
} hindcast_optimizer;

/* Writes the defaults of torch::optim for `kind`; SGD has none for lr, and gets 0.001. `size`: sizeof(hindcast_optimizer). */
HINDCAST_C_API int32_t hindcast_optimizer_init(hindcast_optimizer* optimizer, uint64_t size, int32_t kind);

/* An optimizer over `count` parameters: leaf tensors that require a gradient. The step shares them with the caller, who may free its
 * at::Tensor objects. Do not run one step on several threads at a time. */
HINDCAST_C_API int32_t hindcast_step_create(const hindcast_optimizer* optimizer, void* const* parameters, uint64_t count, uint64_t* step);
/* Adds a parameter group with its own hyperparameters, of the same kind. Clipping is the step's. */
HINDCAST_C_API int32_t hindcast_step_add_parameters(uint64_t step, const hindcast_optimizer* optimizer, void* const* parameters,
                                                    uint64_t count);
/* Clips the gradients, if enabled, and updates the parameters that have one. After a failure, some parameters may have been updated. */
HINDCAST_C_API int32_t hindcast_step_run(uint64_t step);
/* Drops the gradients of all parameters. */
HINDCAST_C_API int32_t hindcast_step_zero_grad(uint64_t step);
/* Sets the learning rate of all groups. */
HINDCAST_C_API int32_t hindcast_step_set_learning_rate(uint64_t step, double lr);
/* The norm of all gradients before the last run clipped them. 0 if there was none. Waits for the device. */
HINDCAST_C_API int32_t hindcast_step_grad_norm(uint64_t step, double* norm);
/* A JSON object: "compiled" parameter updates, "original" ones by LibTorch's own code, and "why_original", the last reason. */
HINDCAST_C_API int32_t hindcast_step_stats_json(uint64_t step, char** text);
/* Saves the optimizer's state to a file of torch::save, and loads it into a step of the same kind and parameters. */
HINDCAST_C_API int32_t hindcast_step_save(uint64_t step, const char* path);
HINDCAST_C_API int32_t hindcast_step_load(uint64_t step, const char* path);
HINDCAST_C_API int32_t hindcast_step_destroy(uint64_t step);

/* -- functions ahead of time (docs/aot.md) -- */

/* A function of tensors, in the language of the binding. `inputs` are borrowed: do not free or keep them. Write new tensors to
 * `outputs`, which is filled with NULL: hindcast owns them, even after an error. Return 0 on success. To fail, call hindcast_set_error()
 * and return anything else: the call that runs the function fails with that text. No exception, panic or longjmp may leave the callback. */
typedef int32_t (*hindcast_callback)(void* user_data, void* const* inputs, uint64_t input_count, void** outputs, uint64_t output_count);
/* Sets the error message of a callback that fails. The text is copied. */
HINDCAST_C_API void hindcast_set_error(const char* text);

#define HINDCAST_PARTITION_STANDARD 0 /* saves what the autograd formulas save */
#define HINDCAST_PARTITION_MIN_CUT 1  /* saves less, and recomputes the rest */

/* docs/aot.md describes each. */
typedef struct hindcast_function_options {
  uint64_t size;
  int32_t compiler;  /* HINDCAST_COMPILER_ */
  int32_t partition; /* HINDCAST_PARTITION_ */
  int32_t dynamic;   /* HINDCAST_DYNAMIC_ */
  int32_t back_off;
  int32_t fallback; /* 0: what cannot be traced fails */
  int32_t fallback_random;
  int32_t async;
  int32_t reserved; /* 0 */
  double memory_budget;
  uint64_t limit;       /* programs per structure of the inputs */
  uint64_t check_every; /* n: every n-th call also runs the callback, and compares */
} hindcast_function_options;

/* Writes the defaults. `size`: sizeof(hindcast_function_options). */
HINDCAST_C_API int32_t hindcast_function_options_init(hindcast_function_options* options, uint64_t size);

/* Compiles `callback` to programs for its forward and its backward. The callback runs in the first call, and whenever no program fits the
 * inputs; everything else that it reads (captured numbers, branches taken) keeps its value of that run: pass such things as `facts`.
 * `release` (may be NULL) is called with `user_data` once, after the last call of `callback`, on any thread; also if this fails. */
HINDCAST_C_API int32_t hindcast_function_create(hindcast_callback callback, void* user_data, void (*release)(void* user_data),
                                                uint64_t output_count, const hindcast_function_options* options, uint64_t* function);
/* Writes `output_count` new tensors, with autograd history if the inputs have one. `facts`: any text that says what the result depends on
 * besides the inputs; NULL is "". */
HINDCAST_C_API int32_t hindcast_function_call(uint64_t function, const char* facts, void* const* inputs, uint64_t input_count,
                                              void** outputs, uint64_t output_count);
/* A JSON object: "calls", "hits" (by a program), "traces", "eager", "left", "backwards" (by a program), "numbers_differed". */
HINDCAST_C_API int32_t hindcast_function_stats_json(uint64_t function, char** text);
/* Results that it returned keep their history. */
HINDCAST_C_API int32_t hindcast_function_destroy(uint64_t function);

#ifdef __cplusplus
}
#endif

#endif
