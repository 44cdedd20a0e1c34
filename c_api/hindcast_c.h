#ifndef HINDCAST_C_H
#define HINDCAST_C_H
/*
 * hindcast for other languages: C functions over tensors that a binding of LibTorch has already. C99, and C++.
 *
 * Tensors. A `void*` here is an `at::Tensor*`: what tch-rs, TorchSharp, DJL, JavaCPP and AOTInductor pass around. hindcast borrows tensors
 * that it is given for the time of the call. A tensor that it gives is a new `at::Tensor`, which the caller frees as its binding frees its
 * own tensors (`at_free`, `THSTensor_dispose`: C++'s `delete`).
 *
 * Errors. A function that returns int32_t returns HINDCAST_OK, or what is wrong; hindcast_last_error() then has a sentence. It has changed
 * nothing then, and what it would give through pointers is 0, unless its comment says otherwise. No C++ exception leaves a function.
 *
 * Handles. Guards, steps and functions are numbers, never 0, and no number is used twice. So a handle that was destroyed is recognised,
 * and is HINDCAST_INVALID_ARGUMENT.
 *
 * Threads. Call everything from any thread, unless its comment says otherwise. An object that one thread destroys while another uses it goes
 * when that call is done.
 *
 * Structs begin with their size, which their _init function writes. A later hindcast adds fields at the end, whose 0 means what was before.
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

/* 1. A function of this header never changes its meaning under the same number; new ones may be added. */
HINDCAST_C_API uint32_t hindcast_abi_version(void);
/* The LibTorch that this library is built for, as "2.11.0". Lives as long as the process. */
HINDCAST_C_API const char* hindcast_libtorch_version(void);
/* What was wrong with the last call on this thread that failed; "" before. Lives until the next call on this thread fails. Never NULL. */
HINDCAST_C_API const char* hindcast_last_error(void);
/* Frees a text that a function gave. NULL is allowed. */
HINDCAST_C_API void hindcast_free_text(char* text);

/* -- backwards -- */

#define HINDCAST_COMPILER_DEFAULT 0 /* fused, or what HINDCAST_COMPILER names in the environment */
#define HINDCAST_COMPILER_FUSED 1   /* kernels; gradients differ from LibTorch's by rounding */
#define HINDCAST_COMPILER_EAGER 2   /* ATen, operator by operator: LibTorch's bits */
#define HINDCAST_COMPILER_FUSED_THROUGH_ATEN 3

#define HINDCAST_DYNAMIC_AUTOMATIC 0 /* sizes become dynamic when they first change */
#define HINDCAST_DYNAMIC_NEVER 1
#define HINDCAST_DYNAMIC_INFERRED 2 /* of functions only */

/* docs/options.md describes each. int32_t: 0 or 1, but for the first two. */
typedef struct hindcast_options {
  uint64_t size;
  int32_t compiler; /* HINDCAST_COMPILER_ */
  int32_t dynamic;  /* HINDCAST_DYNAMIC_ */
  uint64_t limit;   /* captures of one structure */
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

/* Takes over backward() and grad() on this thread until hindcast_disable(). `options`: NULL for the defaults. Guards of a thread nest, and the
 * innermost wins. End it before its thread ends. Where a runtime moves code between threads, as goroutines and tasks of .NET,
 * use hindcast_enable_process(). */
HINDCAST_C_API int32_t hindcast_enable(const hindcast_options* options, uint64_t* guard);
/* The same for all threads that have no guard of their own, those that the binding makes later too. */
HINDCAST_C_API int32_t hindcast_enable_process(const hindcast_options* options, uint64_t* guard);
/* Ends a guard. One of hindcast_enable() only on the thread that made it; elsewhere (in a finalizer) this is HINDCAST_INVALID_ARGUMENT, and
 * the guard stays. Backwards that are running finish as they began. */
HINDCAST_C_API int32_t hindcast_disable(uint64_t guard);
/* 1 if a backward that starts now on this thread would be captured or replayed, else 0. */
HINDCAST_C_API int32_t hindcast_active(void);

/* What was done in this process, for people. Free the text with hindcast_free_text(). */
HINDCAST_C_API int32_t hindcast_report(char** text);
/* The same as a JSON object: counters by name, as in hindcast::Stats, and maps from reasons to counts. */
HINDCAST_C_API int32_t hindcast_stats_json(char** text);
/* Returns when all graphs that wait for kernels have them, or have failed to get them. */
HINDCAST_C_API int32_t hindcast_wait(void);
/* Forgets all captured graphs and zeroes the counters. */
HINDCAST_C_API int32_t hindcast_reset(void);
/* Frees memory that is kept for later steps. `bytes`, which may be NULL: how much of it went back to LibTorch's allocators. */
HINDCAST_C_API int32_t hindcast_trim(uint64_t* bytes);

/* -- the optimizer's step, as kernels (docs/training.md) -- */

#define HINDCAST_SGD 1
#define HINDCAST_ADAM 2
#define HINDCAST_ADAMW 3
#define HINDCAST_RMSPROP 4
#define HINDCAST_ADAGRAD 5

/* A kind of optimizer, and its numbers; a kind reads its own ones only. */
typedef struct hindcast_optimizer {
  uint64_t size;
  int32_t kind;       /* HINDCAST_SGD to HINDCAST_ADAGRAD */
  int32_t nesterov;   /* SGD */
  int32_t amsgrad;    /* Adam, AdamW */
  int32_t centered;   /* RMSprop */
  double lr;          /* all */
  double weight_decay; /* all */
  double momentum;    /* SGD, RMSprop */
  double dampening;   /* SGD */
  double beta1;       /* Adam, AdamW */
  double beta2;       /* Adam, AdamW */
  double eps;         /* all but SGD */
  double alpha;       /* RMSprop */
  double lr_decay;    /* Adagrad */
  double initial_accumulator_value; /* Adagrad */
  double clip_max_norm;             /* 0: gradients are not clipped */
  double clip_norm_type;
} hindcast_optimizer;

/* Writes the defaults of torch::optim for `kind`; SGD has none for lr, and gets 0.001. `size`: sizeof(hindcast_optimizer). */
HINDCAST_C_API int32_t hindcast_optimizer_init(hindcast_optimizer* optimizer, uint64_t size, int32_t kind);

/* An optimizer over `count` parameters: leaves that require a gradient. The step shares them with the caller, who may free its at::Tensor
 * objects. Do not run one step on several threads at a time. */
HINDCAST_C_API int32_t hindcast_step_create(const hindcast_optimizer* optimizer, void* const* parameters, uint64_t count, uint64_t* step);
/* More parameters, with numbers of their own (a parameter group). Of the same kind; its clipping is the step's. */
HINDCAST_C_API int32_t hindcast_step_add_parameters(uint64_t step, const hindcast_optimizer* optimizer, void* const* parameters, uint64_t count);
/* Clips the gradients, if asked for, and updates the parameters that have one. Where it fails, some parameters may have been updated. */
HINDCAST_C_API int32_t hindcast_step_run(uint64_t step);
/* Drops the gradients of all parameters. */
HINDCAST_C_API int32_t hindcast_step_zero_grad(uint64_t step);
/* The learning rate of all groups. */
HINDCAST_C_API int32_t hindcast_step_set_learning_rate(uint64_t step, double lr);
/* The norm of all gradients before the last run clipped them. 0: there was none. Waits for the device. */
HINDCAST_C_API int32_t hindcast_step_grad_norm(uint64_t step, double* norm);
/* A JSON object: "compiled" updates of a parameter, "original" ones by LibTorch's own code, and "why_original", the last reason. */
HINDCAST_C_API int32_t hindcast_step_stats_json(uint64_t step, char** text);
/* The optimizer's state as a file of torch::save, and back: into a step of the same kind and parameters. */
HINDCAST_C_API int32_t hindcast_step_save(uint64_t step, const char* path);
HINDCAST_C_API int32_t hindcast_step_load(uint64_t step, const char* path);
HINDCAST_C_API int32_t hindcast_step_destroy(uint64_t step);

/* -- functions ahead of time (docs/aot.md) -- */

/* A function of tensors, in the language of the binding. `inputs` are borrowed: do not free them, and keep none. Write new tensors to
 * `outputs`, which is full of NULL: hindcast owns them, after an error too. Return 0; or anything else after hindcast_set_error(), and
 * the call that runs the function fails with this text. Do not unwind: no exception, panic or longjmp may leave it. */
typedef int32_t (*hindcast_callback)(void* user_data, void* const* inputs, uint64_t input_count, void** outputs, uint64_t output_count);
/* For a callback that fails. Copied. */
HINDCAST_C_API void hindcast_set_error(const char* text);

#define HINDCAST_PARTITION_STANDARD 0 /* saves what autograd's formulas save */
#define HINDCAST_PARTITION_MIN_CUT 1  /* saves less, and computes the rest again */

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
  uint64_t limit;       /* programs of one structure of the inputs */
  uint64_t check_every; /* n: run the callback beside every n-th call, and compare */
} hindcast_function_options;

/* Writes the defaults. `size`: sizeof(hindcast_function_options). */
HINDCAST_C_API int32_t hindcast_function_options_init(hindcast_function_options* options, uint64_t size);

/* `callback` as programs of its forward and its backward. It runs in the first call, and whenever tensors come that no program is for; all
 * else that it reads (numbers that it captured, branches that it took) stays as it was then: give such things as `facts`.
 * `release`, which may be NULL, is called with `user_data` once, after the last call of `callback`, on any thread; also if this fails. */
HINDCAST_C_API int32_t hindcast_function_create(hindcast_callback callback, void* user_data, void (*release)(void* user_data),
                                                uint64_t output_count, const hindcast_function_options* options, uint64_t* function);
/* Writes `output_count` new tensors, with history where the inputs have one. `facts`: what the result depends on besides the inputs, as any
 * text; NULL is "". */
HINDCAST_C_API int32_t hindcast_function_call(uint64_t function, const char* facts, void* const* inputs, uint64_t input_count, void** outputs,
                                              uint64_t output_count);
/* A JSON object: "calls", "hits" (by a program), "traces", "eager", "left", "backwards" (by a program), "numbers_differed". */
HINDCAST_C_API int32_t hindcast_function_stats_json(uint64_t function, char** text);
/* Results that it gave keep their history. */
HINDCAST_C_API int32_t hindcast_function_destroy(uint64_t function);

#ifdef __cplusplus
}
#endif

#endif
