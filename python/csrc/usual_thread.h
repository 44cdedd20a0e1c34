#pragma once
// Modes of a thread under which a call from Python takes the way of Python's own code.

namespace hindcast::python {

/// No mode of dispatch or of torch functions, transform of torch.func, trace, or PyTorch's compiled autograd. Call it with the GIL.
bool is_usual_thread();

}  // namespace hindcast::python
