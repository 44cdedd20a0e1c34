// A C# program over a binding: the garbage collector frees tensors and destroys handles on its own thread while other threads train.

using System;
using System.Runtime.InteropServices;
using System.Threading;

static class Native {
  [DllImport("binding")] public static extern IntPtr at_linspace(double start, double end, long steps);
  [DllImport("binding")] public static extern void at_set_requires_grad(IntPtr t, int requiresGrad);
  [DllImport("binding")] public static extern IntPtr at_mul(IntPtr a, IntPtr b);
  [DllImport("binding")] public static extern IntPtr at_sin(IntPtr a);
  [DllImport("binding")] public static extern IntPtr at_sum(IntPtr a);
  [DllImport("binding")] public static extern void at_backward(IntPtr t, int keepGraph, int createGraph);
  [DllImport("binding")] public static extern IntPtr at_grad(IntPtr t);
  [DllImport("binding")] public static extern double at_double_value_at(IntPtr t, long index);
  [DllImport("binding")] public static extern void at_free(IntPtr t);

  [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
  public delegate int Callback(IntPtr userData, IntPtr inputs, ulong inputCount, IntPtr outputs, ulong outputCount);

  [DllImport("hindcast")] public static extern IntPtr hindcast_last_error();
  [DllImport("hindcast")] public static extern int hindcast_enable(IntPtr options, out ulong guard);
  [DllImport("hindcast")] public static extern int hindcast_enable_process(IntPtr options, out ulong guard);
  [DllImport("hindcast")] public static extern int hindcast_disable(ulong guard);
  [DllImport("hindcast")] public static extern int hindcast_active();
  [DllImport("hindcast")] public static extern int hindcast_function_create(Callback callback, IntPtr userData, IntPtr release,
                                                                             ulong outputCount, IntPtr options, out ulong function);
  [DllImport("hindcast")] public static extern int hindcast_function_call(ulong function, string facts, IntPtr[] inputs, ulong inputCount,
                                                                           IntPtr[] outputs, ulong outputCount);
  [DllImport("hindcast")] public static extern int hindcast_function_destroy(ulong function);
}

static class Check {
  public static void Ok(int status) {
    if (status != 0) throw new Exception(Marshal.PtrToStringAnsi(Native.hindcast_last_error()));
  }
  public static void That(bool condition, string what) {
    if (!condition) throw new Exception(what);
  }
}

// Freed by the collector's thread.
sealed class Tensor {
  public readonly IntPtr Handle;
  public Tensor(IntPtr handle) { Handle = handle; }
  ~Tensor() { Native.at_free(Handle); }

  public Tensor Sin() { return Keep(new Tensor(Native.at_sin(Handle))); }
  public Tensor Sum() { return Keep(new Tensor(Native.at_sum(Handle))); }
  public Tensor Gradient() { return Keep(new Tensor(Native.at_grad(Handle))); }
  public void Backward() { Native.at_backward(Handle, 0, 0); GC.KeepAlive(this); }
  public double Last() { double value = Native.at_double_value_at(Handle, 3); GC.KeepAlive(this); return value; }
  Tensor Keep(Tensor result) { GC.KeepAlive(this); return result; }

  public static Tensor Leaf() {
    var x = new Tensor(Native.at_linspace(0, 1, 4));
    Native.at_set_requires_grad(x.Handle, 1);
    return x;
  }
}

sealed class Function {
  readonly Native.Callback callback;  // lives as long as the handle
  readonly ulong handle;
  public int Calls;

  public Function() {
    callback = (data, inputs, inputCount, outputs, outputCount) => {
      Interlocked.Increment(ref Calls);
      IntPtr x = Marshal.ReadIntPtr(inputs);
      Marshal.WriteIntPtr(outputs, Native.at_mul(x, x));
      return 0;
    };
    Check.Ok(Native.hindcast_function_create(callback, IntPtr.Zero, IntPtr.Zero, 1, IntPtr.Zero, out handle));
  }
  ~Function() { Native.hindcast_function_destroy(handle); }

  public Tensor Call(Tensor x) {
    var outputs = new IntPtr[1];
    Check.Ok(Native.hindcast_function_call(handle, null, new[] { x.Handle }, 1, outputs, 1));
    GC.KeepAlive(x);
    GC.KeepAlive(this);
    return new Tensor(outputs[0]);
  }
}

static class Program {
  static void Train() {
    var square = new Function();
    for (int step = 0; step < 200; ++step) {
      Check.That(Native.hindcast_active() == 1, "this thread is not enabled");
      var x = Tensor.Leaf();
      x.Sin().Sum().Backward();
      Check.That(Math.Abs(x.Gradient().Last() - Math.Cos(1)) < 1e-5, "cos is wrong");
      var y = Tensor.Leaf();
      square.Call(y).Sum().Backward();
      Check.That(Math.Abs(y.Gradient().Last() - 2) < 1e-5, "the function's gradient is wrong");
      if (step % 50 == 0) square = new Function();  // the collector destroys the former one
      if (step % 20 == 0) GC.Collect();
    }
    GC.KeepAlive(square);
  }

  static int Main() {
    ulong guard;
    Check.Ok(Native.hindcast_enable_process(IntPtr.Zero, out guard));
    Exception failed = null;
    var threads = new Thread[3];
    for (int i = 0; i < threads.Length; ++i) {
      threads[i] = new Thread(() => {
        try { Train(); } catch (Exception error) { failed = error; }
      });
      threads[i].Start();
    }
    foreach (var thread in threads) thread.Join();
    if (failed != null) throw failed;
    Check.Ok(Native.hindcast_disable(guard));

    ulong own;
    int status = 0;
    Check.Ok(Native.hindcast_enable(IntPtr.Zero, out own));
    var other = new Thread(() => status = Native.hindcast_disable(own));
    other.Start();
    other.Join();
    Check.That(status == 1, "a guard ended on another thread");
    Check.Ok(Native.hindcast_disable(own));
    GC.Collect();
    GC.WaitForPendingFinalizers();
    Console.WriteLine("right");
    return 0;
  }
}
