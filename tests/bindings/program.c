/* A program in C over a binding: a thread's guard, the process's, a step, a function, errors. */

#include <hindcast/hindcast_c.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bindings/binding.h"

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #condition, hindcast_last_error());   \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)
#define CHECK_OK(call) CHECK((call) == HINDCAST_OK)

static int is_near(double a, double b) { return fabs(a - b) < 1e-5; }

/* The counter of a JSON object without nested numbers of the same name. */
static long counter(const char* name) {
  char* text = NULL;
  char key[64];
  CHECK_OK(hindcast_stats_json(&text));
  snprintf(key, sizeof(key), "\"%s\":", name);
  const char* found = strstr(text, key);
  CHECK(found != NULL);
  const long value = strtol(found + strlen(key), NULL, 10);
  hindcast_free_text(text);
  return value;
}

/* sin(x), whose gradient is cos(x). */
static void train(int steps) {
  for (int step = 0; step < steps; ++step) {
    tensor x = at_linspace(0, 1, 4);
    at_set_requires_grad(x, 1);
    tensor y = at_sin(x), loss = at_sum(y);
    at_backward(loss, 0, 0);
    tensor gradient = at_grad(x);
    CHECK(is_near(at_double_value_at(gradient, 3), cos(1)));
    at_free(gradient);
    at_free(loss);
    at_free(y);
    at_free(x);
  }
}

static void* train_on_a_thread(void* unused) {
  train(10);
  return unused;
}

static void test_guards(const hindcast_options* options) {
  uint64_t own, process;
  CHECK_OK(hindcast_reset());
  CHECK_OK(hindcast_enable(options, &own));
  CHECK(hindcast_active() == 1);
  train(10);
  CHECK(counter("backwards") == 10);
  CHECK_OK(hindcast_disable(own));
  CHECK(hindcast_disable(own) == HINDCAST_INVALID_ARGUMENT);
  CHECK(strstr(hindcast_last_error(), "is no guard") != NULL);

  CHECK_OK(hindcast_enable_process(options, &process));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, train_on_a_thread, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(counter("backwards") == 20);
  CHECK_OK(hindcast_disable(process));
  train(1);
  CHECK(counter("backwards") == 20);
}

/* Minimises sum(sin(w)) by SGD: w -= lr * cos(w). */
static void test_step(void) {
  hindcast_optimizer sgd;
  CHECK_OK(hindcast_optimizer_init(&sgd, sizeof(sgd), HINDCAST_SGD));
  sgd.lr = 0.5;
  tensor w = at_linspace(0, 1, 4);
  at_set_requires_grad(w, 1);
  void* parameters[] = {w};
  uint64_t step;
  CHECK_OK(hindcast_step_create(&sgd, parameters, 1, &step));
  double expected = 1;
  for (int i = 0; i < 5; ++i) {
    tensor y = at_sin(w), loss = at_sum(y);
    at_backward(loss, 0, 0);
    CHECK_OK(hindcast_step_run(step));
    CHECK_OK(hindcast_step_zero_grad(step));
    expected -= 0.5 * cos(expected);
    CHECK(is_near(at_double_value_at(w, 3), expected));
    at_free(loss);
    at_free(y);
  }
  CHECK_OK(hindcast_step_destroy(step));
  CHECK(hindcast_step_run(step) == HINDCAST_INVALID_ARGUMENT);
  at_free(w);
}

typedef struct {
  int calls, releases, fails;
} counts;

static int32_t product(void* user_data, void* const* inputs, uint64_t input_count, void** outputs, uint64_t output_count) {
  counts* counted = (counts*)user_data;
  ++counted->calls;
  if (counted->fails) {
    hindcast_set_error("not today");
    return 1;
  }
  if (input_count != 2 || output_count != 1) return 2;
  tensor sine = at_sin(inputs[0]);
  outputs[0] = at_mul(sine, inputs[1]);
  at_free(sine);
  return 0;
}
static void release(void* user_data) { ++((counts*)user_data)->releases; }

static void test_function(void) {
  counts counted = {0, 0, 1};
  uint64_t function;
  void* outputs[1];
  CHECK_OK(hindcast_function_create(product, &counted, release, 1, NULL, &function));
  tensor a = at_linspace(0, 1, 4), b = at_linspace(1, 2, 4);
  void* inputs[] = {a, b};
  at_set_requires_grad(a, 1);
  CHECK(hindcast_function_call(function, NULL, inputs, 2, outputs, 1) == HINDCAST_FAILED);
  CHECK(strstr(hindcast_last_error(), "not today") != NULL);
  counted.fails = counted.calls = 0;
  for (int call = 1; call <= 3; ++call) {
    CHECK_OK(hindcast_function_call(function, NULL, inputs, 2, outputs, 1));
    CHECK(is_near(at_double_value_at(outputs[0], 3), sin(1) * 2));
    tensor loss = at_sum(outputs[0]);
    at_backward(loss, 0, 0);
    tensor gradient = at_grad(a);
    CHECK(is_near(at_double_value_at(gradient, 3), call * cos(1) * 2));
    at_free(gradient);
    at_free(loss);
    at_free(outputs[0]);
  }
  CHECK(counted.calls == 1);
  CHECK_OK(hindcast_function_destroy(function));
  CHECK(counted.releases == 1);
  at_free(a);
  at_free(b);
}

int main(void) {
  hindcast_options options;
  CHECK(hindcast_abi_version() == 1);
  CHECK_OK(hindcast_options_init(&options, sizeof(options)));
  options.compiler = HINDCAST_COMPILER_EAGER;
  options.back_off = 0;
  test_guards(&options);
  test_step();
  const int64_t before = at_living();
  test_function();
  /* What the callback gave is hindcast's, and freed without at_free(); what hindcast gave was freed by it, three times. */
  CHECK(at_living() - before == 1 - 3);
  puts("right");
  return 0;
}
