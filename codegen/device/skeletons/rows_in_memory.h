#pragma once
// Rows that are too long for registers: each pass reads them again, from memory or from what an earlier pass kept in shared memory. Either
// a block has a row (or several), or several blocks share a row, with one launch per pass.

#include "codegen/device/skeletons/row_operands.h"

#if HC_CUDA
namespace hindcast::device {

template <class Body, int... kNumbers>
constexpr bool keeps_loads(Indices<kNumbers...>) {
  return (kIsReadAgain<Body, kNumbers> || ... || false);
}
template <class Body>
inline constexpr bool kKeepsLoads = keeps_loads<Body>(Below<kLoads<Body>>());

/// Loads that one pass keeps in shared memory for a later one. A thread reads only what it has written itself.
template <class Body>
struct KeptLoads {
  char* memory[kAtLeastOne<kLoads<Body>>];
  char* end;

  HC_DEVICE_MEMBER void place(char* shared, const Rows<Body>& arguments) {
    end = shared + threadIdx.y * arguments.kept_bytes;
    for_each_below<kLoads<Body>>([&](auto i) {
      if constexpr (kIsReadAgain<Body, i>) {
        memory[i] = end;
        end += bytes_kept(arguments.segments * arguments.columns, sizeof(typename LoadAt<Body, i>::Type));
      }
    });
  }
};

/// Loads a piece, from shared memory if an earlier pass kept it there; the first pass to read it keeps it.
template <class Body, int kPass, int kLoad, int kVector, bool kKeeps, class Number>
HC_DEVICE auto load_kept(const RowPlace<Body>& place, const KeptLoads<Body>& kept, const Piece<Number>& piece, int64 first_column) {
  using T = typename LoadAt<Body, kLoad>::Type;
  if constexpr (!kKeeps || !kIsReadAgain<Body, kLoad>) {
    return place.template load_piece<kLoad, kVector>(piece);
  } else {
    T* const there = reinterpret_cast<T*>(kept.memory[kLoad]) + first_column;
    if constexpr (is_first_pass_of<Body, kPass, kLoad>()) {
      const auto vector = place.template load_piece<kLoad, kVector>(piece);
      store_vector<kVector>(there, vector);
      return vector;
    } else {
      return load_vector<kVector>(static_cast<const T*>(there));
    }
  }
}

/// Sums over rows in memory: of the slice, where each thread accesses only its own elements, or in shared memory, as many as fit
/// (codegen/cuda/launch_config.cpp); otherwise each row would read and write them in global memory.
template <class Body>
struct SumsInMemory {
  using T = typename Body::Compute;
  T* slices[kAtLeastOne<kStores<Body>>];
  T* memory[kAtLeastOne<kStores<Body>>];
  bool keeps[kAtLeastOne<kStores<Body>>];

  template <bool kKeeps>
  HC_DEVICE_MEMBER void place(const Rows<Body>& arguments, int64 slice, char* shared) {
    int64 sums = 0;
    for_each_below<kStores<Body>>([&](auto i) {
      if constexpr (kIsOfColumns<StoreAt<Body, i>> || kIsOfChannels<StoreAt<Body, i>>) {
        slices[i] = reinterpret_cast<T*>(arguments.pointers[kLoads<Body> + i] + slice * arguments.stores[i].partial_bytes);
        memory[i] = slices[i];
        keeps[i] = false;
        if constexpr (kKeeps && kIsOfColumns<StoreAt<Body, i>>) {
          keeps[i] = arguments.kept_sums > sums;
          if (keeps[i]) memory[i] = reinterpret_cast<T*>(shared + sums * bytes_kept(arguments.segments * arguments.columns, sizeof(T)));
          ++sums;
        }
      }
    });
  }

  /// Where the sums of a piece are, and the bytes from one chunk of them to the next: in shared memory, those of a thread are apart.
  /// (Keeping the strides in variables would take registers, so that a multiprocessor would hold one block of a layer norm instead of two.)
  template <int kVector>
  HC_DEVICE_MEMBER T* at(int store, int64 piece) const {
    using Sums = Vector<T, kVector>;
    return reinterpret_cast<T*>(reinterpret_cast<char*>(memory[store]) + (keeps[store] ? piece * Sums::kChunk : piece * Sums::kBytes));
  }
  template <int kVector>
  HC_DEVICE_MEMBER int apart(int store, int64 pieces) const {
    return Vector<T, kVector>::kChunk * (keeps[store] ? int(pieces) : 1);
  }
};

/// The column sums of one piece, loaded from memory. The first row of a slice starts them.
template <class Body, int kVector>
struct SumsOfPiece {
  using T = typename Body::Compute;
  Vector<T, kVector> sums[kAtLeastOne<kStores<Body>>];
  T share;  // 1 divided by the number of rows so far
  bool first;

  HC_DEVICE_MEMBER bool is_first() const { return first; }
  template <int kStore>
  HC_DEVICE_MEMBER T get(Index<kStore>, int j) const {
    return sums[kStore].get(j);
  }
  template <int kStore>
  HC_DEVICE_MEMBER void set(Index<kStore>, int j, T value) {
    sums[kStore].set(j, value);
  }
};

/// One pass over a row: what a thread has of it, kItems vectors at a time, whose loads all come first so that they are in flight together.
template <class Body, int kPass, int kVector, int kItems, bool kKeeps>
HC_DEVICE void run_pass(const RowPlace<Body>& place, const typename Body::Row& row, const KeptLoads<Body>& kept,
                        const SumsInMemory<Body>& sums, typename Body::Compute share, bool is_first_row, int64 begin, int64 pieces,
                        Numbers<typename PassAt<Body, kPass>::Reductions>& numbers) {
  using T = typename Body::Compute;
  using Pass = PassAt<Body, kPass>;
  using Reductions = typename Pass::Reductions;
  clear<Reductions>(numbers);
  for (int64 part = begin; place.is_row && part < pieces; part += kItems * int(blockDim.x)) {
    RowVectors<Body, kVector> vectors[kItems];
    const auto for_each_item = [&](auto function) {
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const int64 piece = part + k * int(blockDim.x);
        if (piece >= pieces) continue;
        function(place.template piece<false>(piece), vectors[k]);
      }
    };
    for_each_item([&](const Piece<int64>& piece, auto& loaded) {
      for_each(typename Pass::Loads(),
               [&](auto i) { get<i>(loaded) = load_kept<Body, kPass, i, kVector, kKeeps>(place, kept, piece, piece.number * kVector); });
    });
    for_each_item([&](const Piece<int64>& piece, auto& loaded) {
      Parts<Reductions, kVector> parts;
      RowResults<Body, kVector> results;
      SumsOfPiece<Body, kVector> of_columns;
      of_columns.share = share;
      of_columns.first = is_first_row;
      for_each(typename Pass::Columns(), [&](auto i) {
        of_columns.sums[i] = {};
        const T* const from = sums.template at<kVector>(i, piece.number);
        if (!is_first_row) of_columns.sums[i] = load_vector<kVector>(from, sums.template apart<kVector>(i, pieces));
      });
      T kept_values[1][kVector];  // every value is cheap to compute again
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        const AtElement<Body, int64, RowVectors<Body, kVector>, RowResults<Body, kVector>, Parts<Reductions, kVector>, T[1][kVector],
                        SumsOfPiece<Body, kVector>>
            at = {place, piece, piece.number * kVector, loaded, results, parts, kept_values, of_columns, j};
        Pass::element(row, at);
      }
      add_vector<Reductions, kVector>(numbers, parts);
      for_each(typename Pass::Columns(), [&](auto i) {
        store_vector<kVector>(sums.template at<kVector>(i, piece.number), of_columns.sums[i], sums.template apart<kVector>(i, pieces));
      });
      store_pass<Pass, kVector>(place, piece, results);
    });
  }
}

template <class Body, int kVector, int kItems, bool kKeeps>
HC_DEVICE void run_rows_long(const Rows<Body>& arguments) {
  using T = typename Body::Compute;
  const int64 slice = int64(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64 pieces = arguments.segments * arguments.columns / kVector;
  KeptLoads<Body> kept = {};
  if constexpr (kKeeps) kept.place(smem, arguments);
  SumsInMemory<Body> sums;
  sums.template place<kKeeps && kKeepsLoads<Body>>(arguments, slice, kept.end);
  for_each_row<Body, false>(arguments, [&](const RowPlace<Body>& place, typename Body::Row& numbers_of_row, T share, bool is_first) {
    for_each_below<kPasses<Body>>([&](auto pass) {
      using Reductions = typename PassAt<Body, pass>::Reductions;
      Numbers<Reductions> numbers;
      run_pass<Body, pass, kVector, kItems, kKeeps>(place, numbers_of_row, kept, sums, share, is_first, threadIdx.x, pieces, numbers);
      over_row_together<T, Reductions>(numbers);
      PassAt<Body, pass>::end(numbers_of_row, AtEnd<Numbers<Reductions>>{numbers});
    });
  });
  if constexpr (kKeeps && kKeepsLoads<Body>) {
    for (int64 piece = threadIdx.x; slice < arguments.rows && piece < pieces; piece += blockDim.x) {
      for_each_below<kStores<Body>>([&](auto i) {
        if constexpr (kIsOfColumns<StoreAt<Body, i>>) {
          const T* const from = sums.template at<kVector>(i, piece);
          if (sums.keeps[i])
            store_vector<kVector>(sums.slices[i] + piece * kVector, load_vector<kVector>(from, sums.template apart<kVector>(i, pieces)));
        }
      });
    }
  }
}

/// All reductions of the passes before this one.
template <class Body, int kPass>
constexpr int reductions_before() {
  int count = 0;
  if constexpr (kPass > 0) count = reductions_before<Body, kPass - 1>() + PassAt<Body, kPass - 1>::Reductions::kCount;
  return count;
}

/// Rows that several blocks share. One launch per pass, and one for the rest: the blocks of one row communicate through memory, where each
/// writes its number for each reduction.
template <class Body, int kVector>
HC_DEVICE void run_rows_split(const Rows<Body>& arguments) {
  using T = typename Body::Compute;
  const int64 of_row = arguments.segments * arguments.columns / kVector, begin = blockIdx.x * arguments.pieces_of_split;
  const int64 pieces = min(of_row, begin + arguments.pieces_of_split), row = blockIdx.y;
  RowPlace<Body> place = {arguments, true};
  place.template set<false, true>(row);
  const AtRow<Body> at_row = {{arguments.scalars}, place, blockIdx.x == 0 && threadIdx.x == 0};
  typename Body::Row numbers_of_row;
  Body::begin(numbers_of_row, at_row);
  bool is_done = false;
  for_each_below<kPasses<Body>>([&](auto pass) {
    constexpr int kPass = pass;
    if (is_done) return;
    using Reductions = typename PassAt<Body, kPass>::Reductions;
    const auto numbers_of = [&](auto i) {
      constexpr int kAll = reductions_before<Body, kPasses<Body>>(), kReduction = reductions_before<Body, kPass>() + i;
      using Number = typename At<i, Reductions>::Number;
      return reinterpret_cast<Number*>(arguments.numbers + (row * kAll + kReduction) * arguments.splits * kNumberBytes);
    };
    Numbers<Reductions> numbers;
    if (arguments.pass == pass) {
      run_pass<Body, pass, kVector, 1, false>(place, numbers_of_row, {}, {}, T(0), false, begin + threadIdx.x, pieces, numbers);
      over_row_together<T, Reductions>(numbers);
      for_each_below<Reductions::kCount>([&](auto i) {
        if (threadIdx.x == 0) numbers_of(i)[blockIdx.x] = get<i>(numbers);
      });
      is_done = true;
      return;
    }
    for_each_below<Reductions::kCount>([&](auto i) {
      using Reduction = At<i, Reductions>;
      typename Reduction::Number number = Reduction::none();
      for (int64 split = threadIdx.x; split < arguments.splits; split += blockDim.x)
        number = typename Reduction::Combine()(number, numbers_of(i)[split]);
      get<i>(numbers) = over_row(number, typename Reduction::Combine());
    });
    PassAt<Body, pass>::end(numbers_of_row, AtEnd<Numbers<Reductions>>{numbers});
  });
  if (!is_done) Body::end(numbers_of_row, at_row);
}

}  // namespace hindcast::device
#endif
