# test_torch_versions: what `make check-torch-versions` runs against each LibTorch that hindcast knows. Few files of the other
# programs, chosen for what changes between releases: the classes of nodes and their fields, who owns nodes, the order of
# hooks, gradients to the bit, custom functions, kernels. Nothing else builds it, and ctest does not know it.

set(torch_versions_files
  capture/typed_collectors_test.cpp capture/libtorch_access_test.cpp
  engine/semantics_accumulate_test.cpp engine/semantics_functions_test.cpp engine/semantics_memory_test.cpp
  engine/semantics_values_test.cpp engine/second_order_test.cpp
  engine/aot/aot_grads.cpp engine/aot/contract_test.cpp engine/aot/modules_test.cpp engine/aot/semantics_test.cpp
  engine/optim/compiled_step_test.cpp engine/optim/optimizers.cpp engine/train/train_step_test.cpp
  engine/torchscript/jit_test.cpp engine/torchscript/aot_module_test.cpp
  hooks/hook_order_test.cpp
  whole/refusals/a_graph_task_of_somebody_else_runs_on_the_stock_engine_test.cpp
  whole/refusals/unusual_dispatch_state_runs_on_the_stock_engine_test.cpp whole/refusals/refusal.cpp)
if(TARGET hindcast_clang)
  list(APPEND torch_versions_files codegen/fuse/pointwise_test.cpp codegen/kernel/leaf_grads_test.cpp codegen/cpu/near_grads.cpp)
endif()
list(TRANSFORM torch_versions_files PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")

hindcast_program(test_torch_versions SOURCES ${torch_versions_files} ${generated_for_test_capture}
  LINK hindcast_internal test_support GTest::gtest GTest::gmock GTest::gtest_main)
foreach(part "" _with_some_of_torch _with_all_of_torch)
  if(TARGET test_torch_versions${part})
    set_target_properties(test_torch_versions${part} PROPERTIES EXCLUDE_FROM_ALL ON UNITY_BUILD OFF)  # files of several programs, with equal names in them
  endif()
endforeach()
if(TARGET hindcast_clang)
  add_dependencies(test_torch_versions hindcast_clang)
endif()
