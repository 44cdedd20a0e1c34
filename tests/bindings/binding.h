/* Stands for a binding of LibTorch: a few functions as tch-rs declares them, which know nothing of hindcast. */
#ifndef HINDCAST_TESTS_BINDING_H
#define HINDCAST_TESTS_BINDING_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void* tensor; /* at::Tensor* */

tensor at_linspace(double start, double end, int64_t steps);
void at_set_requires_grad(tensor t, int32_t requires_grad);
tensor at_mul(tensor a, tensor b);
tensor at_sin(tensor a);
tensor at_sum(tensor a);
void at_backward(tensor t, int32_t keep_graph, int32_t create_graph);
tensor at_grad(tensor t); /* a new tensor; an undefined one where there is no gradient */
double at_double_value_at(tensor t, int64_t index);
void at_free(tensor t);
/* Tensors of this binding that are not freed. */
int64_t at_living(void);

#ifdef __cplusplus
}
#endif

#endif
