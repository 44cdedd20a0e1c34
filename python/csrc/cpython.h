#pragma once
// The part of CPython's stable ABI (Python 3.10 to 3.14) that hindcast._C needs. Declared here, not included, so that no build needs
// Python's headers. The symbols are weak: this library also loads in a process without an interpreter, which never calls them.

#include <cstddef>
#include <cstdint>

struct _object;
struct _ts;

namespace hindcast::python {
using Object = ::_object;

/// PyMethodDef. Its `flags` are METH_ constants.
struct MethodDefinition {
  const char* name;
  Object* (*function)(Object* self, Object* const* args, std::ptrdiff_t count);
  int flags;
  const char* doc;
};
constexpr int kFastCall = 0x80;  // METH_FASTCALL: arguments by position, as an array
constexpr int kKeywords = 0x02;  // METH_KEYWORDS: then a tuple of names, whose values are at the end of the array

/// PyModuleDef.
struct ModuleDefinition {
  void* head[5];
  const char* name;
  const char* doc;
  std::ptrdiff_t size;
  MethodDefinition* methods;
  void* slots[4];
};
}  // namespace hindcast::python

// clang-format off
#define HC_PYTHON(type) extern "C" __attribute__((weak)) type
HC_PYTHON(void) Py_IncRef(_object*);
HC_PYTHON(void) Py_DecRef(_object*);
HC_PYTHON(_object*) PyErr_Occurred();
HC_PYTHON(void) PyErr_Clear();
HC_PYTHON(void) PyErr_SetString(_object* type, const char* text);
HC_PYTHON(void) PyErr_Fetch(_object** type, _object** value, _object** traceback);
HC_PYTHON(void) PyErr_Restore(_object* type, _object* value, _object* traceback);
HC_PYTHON(_ts*) PyEval_SaveThread();
HC_PYTHON(void) PyEval_RestoreThread(_ts*);
HC_PYTHON(int) PyGILState_Ensure();
HC_PYTHON(void) PyGILState_Release(int);

HC_PYTHON(_object*) PyObject_GetAttr(_object*, _object* name);
HC_PYTHON(int) PyObject_SetAttr(_object*, _object* name, _object* value);
HC_PYTHON(_object*) PyObject_GenericGetAttr(_object*, _object* name);
HC_PYTHON(_object*) PyObject_GenericGetDict(_object*, void*);
HC_PYTHON(_object*) PyObject_Call(_object*, _object* args, _object* kwargs);
HC_PYTHON(_object*) PyObject_CallFunctionObjArgs(_object*, ...);
HC_PYTHON(_object*) PyObject_CallMethodObjArgs(_object*, _object* name, ...);
HC_PYTHON(int) PyObject_IsTrue(_object*);
HC_PYTHON(std::ptrdiff_t) PyObject_Size(_object*);
HC_PYTHON(int) PyObject_RichCompareBool(_object*, _object*, int);

HC_PYTHON(_object*) PyTuple_New(std::ptrdiff_t);
HC_PYTHON(std::ptrdiff_t) PyTuple_Size(_object*);
HC_PYTHON(_object*) PyTuple_GetItem(_object*, std::ptrdiff_t);
HC_PYTHON(int) PyTuple_SetItem(_object*, std::ptrdiff_t, _object*);
HC_PYTHON(_object*) PyList_New(std::ptrdiff_t);
HC_PYTHON(std::ptrdiff_t) PyList_Size(_object*);
HC_PYTHON(_object*) PyList_GetItem(_object*, std::ptrdiff_t);
HC_PYTHON(int) PyList_SetItem(_object*, std::ptrdiff_t, _object*);
HC_PYTHON(_object*) PyDict_New();
HC_PYTHON(std::ptrdiff_t) PyDict_Size(_object*);
HC_PYTHON(int) PyDict_Next(_object*, std::ptrdiff_t*, _object** key, _object** value);
HC_PYTHON(_object*) PyDict_GetItemWithError(_object*, _object* key);
HC_PYTHON(int) PyDict_SetItem(_object*, _object* key, _object* value);
HC_PYTHON(std::ptrdiff_t) PySet_Size(_object*);
HC_PYTHON(int) PySet_Contains(_object*, _object*);
HC_PYTHON(std::ptrdiff_t) PySequence_Size(_object*);
HC_PYTHON(_object*) PySequence_GetItem(_object*, std::ptrdiff_t);
HC_PYTHON(_object*) PyCell_Get(_object*);
HC_PYTHON(_object*) PyFunction_GetCode(_object*);
HC_PYTHON(_object*) PyFunction_GetDefaults(_object*);
HC_PYTHON(_object*) PyFunction_GetKwDefaults(_object*);
HC_PYTHON(_object*) PyLong_FromLongLong(long long);
HC_PYTHON(long long) PyLong_AsLongLong(_object*);
HC_PYTHON(_object*) PyFloat_FromDouble(double);
HC_PYTHON(double) PyFloat_AsDouble(_object*);
HC_PYTHON(_object*) PyComplex_FromDoubles(double, double);
HC_PYTHON(_object*) PyUnicode_InternFromString(const char*);
HC_PYTHON(_object*) PyUnicode_FromString(const char*);
HC_PYTHON(const char*) PyUnicode_AsUTF8AndSize(_object*, std::ptrdiff_t*);

HC_PYTHON(_object*) PyImport_ImportModule(const char*);
HC_PYTHON(_object*) PyImport_GetModuleDict();
HC_PYTHON(_object*) PyModule_GetDict(_object*);
HC_PYTHON(_object*) PyModule_Create2(hindcast::python::ModuleDefinition*, int abi_version);
HC_PYTHON(_object*) PyCFunction_NewEx(hindcast::python::MethodDefinition*, _object* self, _object* module);
HC_PYTHON(_object*) PyCFunction_GetSelf(_object*);
HC_PYTHON(_object*) PyCapsule_New(void*, const char* name, void (*destroy)(_object*));
HC_PYTHON(void*) PyCapsule_GetPointer(_object*, const char* name);
// In the stable ABI from 3.12 on. Python 3.10 has it as an inline function, so it is null there.
HC_PYTHON(_object*) PyObject_Vectorcall(_object*, _object* const* args, size_t count, _object* names);

HC_PYTHON(_object*) PyExc_RuntimeError;
HC_PYTHON(_object) _Py_NoneStruct;
HC_PYTHON(_object) _Py_TrueStruct;
HC_PYTHON(_object) _Py_FalseStruct;
HC_PYTHON(_object) _Py_NotImplementedStruct;
HC_PYTHON(_object) PyTuple_Type;
HC_PYTHON(_object) PyList_Type;
HC_PYTHON(_object) PyDict_Type;
HC_PYTHON(_object) PyFloat_Type;
HC_PYTHON(_object) PyLong_Type;
HC_PYTHON(_object) PyUnicode_Type;
#undef HC_PYTHON
// clang-format on
