// What ends up in .grad, and who owns its memory: AccumulateGrad steals, clones to the layout of the leaf, or adds in place.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/programs.h"
#include "tests/support/recording_hooks.h"

namespace hindcast::tests {
namespace {

std::string same(const at::Tensor& a, const at::Tensor& b) {
  return std::string(a.is_same(b) ? "the same tensor" : "another tensor") + ", " +
         (a.is_alias_of(b) ? "the same storage" : "another storage");
}

TEST(AccumulateGrad, LeavesWithEqualGradientsGetDistinctGrads) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    (x + w).backward(at::ones({3}));
    log.note(same(x.grad(), w.grad()));
    x.grad().mul_(5);
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(AccumulateGrad, ManyLeavesOfOneSumGetDistinctGrads) {
  expect_same_steps(3, [](Log& log, int) {
    std::vector<at::Tensor> leaves;
    auto sum = at::zeros({4});
    for (int i = 0; i < 6; ++i) {
      leaves.push_back(leaf({4}));
      sum = sum + leaves.back();
    }
    sum.exp().sum().backward();
    for (int i = 0; i < 6; ++i) {
      for (int j = 0; j < i; ++j) {
        if (leaves[i].grad().is_alias_of(leaves[j].grad())) log.note("shared storage");
      }
      leaves[i].grad().mul_(i + 2);
    }
    for (const auto& each : leaves) {
      log.show("grad", each.grad());
    }
  });
}

TEST(AccumulateGrad, DoesNotTakeTheGradientThatTheCallerHolds) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto gradient = at::ones({3});
    x.backward(gradient);
    log.note(same(x.grad(), gradient));
  });
}

TEST(AccumulateGrad, TakesAGradientThatNobodyElseHolds) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const void* data = nullptr;
    x.register_hook([&](at::Tensor grad) { data = grad.data_ptr(); });
    x.sin().sum().backward();
    log.note(x.grad().data_ptr() == data ? "taken" : "copied");
  });
}

TEST(AccumulateGrad, CopiesAGradientThatAHookKeeps) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    at::Tensor kept;
    x.register_hook([&](at::Tensor grad) { kept = grad; });
    x.sin().sum().backward();
    log.note(same(x.grad(), kept));
  });
}

TEST(AccumulateGrad, CopiesAViewOfAnExpandedGradient) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3, 4});
    x.sum().backward();
    log.show("x.grad", x.grad());
    x.grad().select(0, 0).add_(1);
    log.show("x.grad", x.grad());
  });
}

TEST(AccumulateGrad, AddsInPlaceAndKeepsTheTensor) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    x.sin().sum().backward();
    const auto grad = x.grad();
    for (int i = 0; i < 3; ++i) {
      x.cos().sum().backward();
      log.note(same(x.grad(), grad));
      log.note("version " + std::to_string(x.grad()._version()));
    }
    log.show("x.grad", x.grad());
  });
}

TEST(AccumulateGrad, VersionOfAFreshGradIsZero) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    (x * w + x).sum().backward();
    log.note(std::to_string(x.grad()._version()) + " " + std::to_string(w.grad()._version()));
  });
}

// A gradient that nobody else holds becomes the leaf's without `detach()`: it must be indistinguishable from a detached one.
TEST(AccumulateGrad, AFreshGradIsADetachedOne) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3, 4}), w = leaf({3, 4}), v = leaf({3}), u = leaf({4});
    w.register_hook([](const at::Tensor& grad) { return grad.clone().requires_grad_(); });
    v.register_hook([](const at::Tensor& grad) { return (grad * 1).view({3}); });
    u.register_hook([](const at::Tensor& grad) { return at::_neg_view(grad.clone()); });
    ((x * w).sin() * v.unsqueeze(1) + u).exp().sum().backward();
    for (const at::Tensor& leaf : {x, w, v, u}) {
      const at::Tensor& grad = leaf.grad();
      c10::TensorImpl& impl = *grad.unsafeGetTensorImpl();
      log.show("grad", grad);
      log.note("held " + std::to_string(grad.use_count()) + ", storage held " + std::to_string(grad.storage().use_count()));
      log.note("version " + std::to_string(grad._version()) + (grad.requires_grad() ? ", requires grad" : ""));
      log.note(std::string(grad.is_view() ? "view" : "no view") + (impl.allow_tensor_metadata_change() ? "" : ", fixed"));
      log.note(c10::toString(impl.key_set()));
      grad.resize_({2});
      grad.requires_grad_();
      log.show("resized", grad);
    }
  });
}

TEST(AccumulateGrad, ZeroedGradIsAddedTo) {
  expect_same(
      [](Log& log) {
        const auto x = leaf({3});
        for (int step = 0; step < 4; ++step) {
          x.sin().sum().backward();
          log.show("x.grad", x.grad());
          x.grad().zero_();
        }
      },
      Takeover::Hits);
}

TEST(AccumulateGrad, MixesUndefinedAndDefinedGrads) {
  expect_same(
      [](Log& log) {
        const auto x = leaf({3}), w = leaf({3});
        for (int step = 0; step < 6; ++step) {
          if (step % 2 == 0) x.mutable_grad().reset();
          if (step % 3 == 0) w.mutable_grad().reset();
          (x * w).sin().sum().backward();
          log.show("grads", {x.grad(), w.grad()});
        }
      },
      Takeover::Hits);
}

TEST(AccumulateGrad, LeafUsedManyTimesSumsBeforeWriting) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    int writes = 0;
    hindcast::on_grad_ready(x, [&](const at::Tensor&) { ++writes; });
    (x * x + x.sin() * x.cos() + x).sum().backward();
    log.note(std::to_string(writes) + " writes");
    log.show("x.grad", x.grad());
  });
}

// The layout of a fresh .grad is that of the leaf.
struct Layout {
  const char* name;
  at::Tensor (*make)();
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

class LeafLayouts : public testing::TestWithParam<Layout> {};

TEST_P(LeafLayouts, GiveTheirGradTheirStrides) {
  expect_same_steps(3, [make = GetParam().make](Log& log, int) {
    const auto x = make().set_requires_grad(true);
    x.sin().sum().backward();
    log.show("of a fresh gradient", x.grad());
    x.mutable_grad().reset();
    x.sum().backward();
    log.show("of an expanded gradient", x.grad());
    x.mutable_grad().reset();
    x.backward(at::ones(x.sizes()));
    log.show("of a contiguous gradient", x.grad());
    (x * 2).sum().backward();
    log.show("after adding", x.grad());
  });
}

INSTANTIATE_TEST_SUITE_P(AccumulateGrad, LeafLayouts,
                         testing::Values(Layout{"Contiguous",
                                                [] {
                                                  return at::randn({2, 3, 4, 5});
                                                }},
                                         Layout{
                                             "ChannelsLast",
                                             [] {
                                               return at::randn({2, 3, 4, 5}).to(at::kFloat, false, false, at::MemoryFormat::ChannelsLast);
                                             }},
                                         Layout{"Transposed",
                                                [] {
                                                  return at::randn({3, 4}).t();
                                                }},
                                         Layout{"Permuted",
                                                [] {
                                                  return at::randn({2, 3, 4}).permute({2, 0, 1});
                                                }},
                                         Layout{"Sliced",
                                                [] {
                                                  return at::randn({4, 8}).slice(1, 0, 8, 2);
                                                }},
                                         Layout{"Offset",
                                                [] {
                                                  return at::randn({5, 3}).slice(0, 1, 4);
                                                }},
                                         Layout{"Expanded",
                                                [] {
                                                  return at::randn({3, 1}).expand({3, 4});
                                                }},
                                         Layout{"SizeOneDimensions",
                                                [] {
                                                  return at::randn({1, 3, 1}).transpose(0, 2);
                                                }},
                                         Layout{"Empty",
                                                [] {
                                                  return at::randn({0, 3});
                                                }},
                                         Layout{"Scalar", [] { return at::randn({}); }}),
                         [](const auto& info) { return info.param.name; });

TEST(AccumulateGrad, GradWithOtherStridesKeepsThem) {
  expect_same(
      [](Log& log) {
        const auto x = leaf({3, 4});
        x.mutable_grad() = at::zeros({4, 3}).t();
        for (int step = 0; step < 3; ++step) {
          x.sin().sum().backward();
          log.show("x.grad", x.grad());
        }
      },
      Takeover::Hits);
}

TEST(AccumulateGrad, GradThatIsAViewIsWrittenThrough) {
  expect_same(
      [](Log& log) {
        // As optimizers with flat buffers and DDP's bucket views do.
        const auto buffer = at::zeros({6});
        const auto x = leaf({3}), w = leaf({3});
        x.mutable_grad() = buffer.slice(0, 0, 3);
        w.mutable_grad() = buffer.slice(0, 3, 6);
        for (int step = 0; step < 3; ++step) {
          (x * w).sum().backward();
          log.show("buffer", buffer);
        }
      },
      Takeover::Hits);
}

TEST(AccumulateGrad, GradsOfTwoLeavesMayShareOneTensor) {
  expect_same(
      [](Log& log) {
        const auto shared = at::zeros({3});
        const auto x = leaf({3}), w = leaf({3});
        x.mutable_grad() = shared;
        w.mutable_grad() = shared;
        for (int step = 0; step < 3; ++step) {
          (x * w).sum().backward();
          log.show("shared", shared);
        }
      },
      Takeover::Hits);
}

TEST(AccumulateGrad, LeavesMayShareStorage) {
  expect_same(
      [](Log& log) {
        const auto flat = at::randn({6});
        const auto x = flat.slice(0, 0, 4).detach().set_requires_grad(true);
        const auto w = flat.slice(0, 2, 6).detach().set_requires_grad(true);
        for (int step = 0; step < 3; ++step) {
          (x * w).sum().backward();
          log.show("grads", {x.grad(), w.grad()});
        }
      },
      Takeover::Hits);
}

TEST(AccumulateGrad, GradThatRequiresGradIsReplacedUnderCreateGraph) {
  expect_same_steps(
      3,
      [](Log& log, int) {
        const auto x = leaf({3});
        x.pow(3).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
        const auto first = x.grad();
        log.show("x.grad", first);
        x.pow(2).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
        log.note(same(x.grad(), first));
        log.show("x.grad", x.grad());
        x.mutable_grad().reset();
      },
      Takeover::Any);
}

TEST(AccumulateGrad, AddsToAGradThatRequiresGrad) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    x.mutable_grad() = at::ones({3}).set_requires_grad(true);
    log.attempt("backward", [&] { x.sin().sum().backward(); });
    log.show("x.grad", x.grad());
  });
}

TEST(AccumulateGrad, SparseGradientsOfAnEmbedding) {
  expect_same(
      [](Log& log) {
        const auto weight = leaf({6, 2});
        for (int step = 0; step < 4; ++step) {
          const auto rows = at::tensor({1, 3, 3, step}, at::kLong);
          at::embedding(weight, rows, -1, false, /*sparse=*/true).sin().sum().backward();
          log.show("weight.grad", weight.grad());
          log.note("version " + std::to_string(weight.grad()._version()));
          if (step == 2) weight.mutable_grad().reset();
        }
      },
      Takeover::Hits);
}

TEST(AccumulateGrad, SparseMeetsDense) {
  expect_same([](Log& log) {
    const auto weight = leaf({6, 2});
    const auto rows = at::tensor({1, 3, 3}, at::kLong);
    for (int step = 0; step < 6; ++step) {
      if (step == 3) weight.mutable_grad().reset();
      const bool sparse = (step / 3 + step) % 2 == 0;
      at::embedding(weight, rows, -1, false, sparse).sum().backward();
      log.show(sparse ? "after sparse" : "after dense", weight.grad());
    }
  });
}

TEST(AccumulateGrad, SparseGradientUsedByTwoNodes) {
  expect_same_steps(3, [](Log& log, int) {
    const auto weight = leaf({6, 2});
    const auto rows = at::tensor({0, 5, 5}, at::kLong);
    (at::embedding(weight, rows, -1, false, true) + at::embedding(weight, rows.flip(0), -1, false, true)).sum().backward();
    log.show("weight.grad", weight.grad());
  });
}

TEST(AccumulateGrad, LeafOfMkldnnLayout) {
  expect_same_steps(
      3,
      [](Log& log, int) {
        const auto x = at::randn({2, 3}).to_mkldnn().set_requires_grad(true);
        log.attempt("backward", [&] { at::relu(x).to_dense().sum().backward(); });
        log.show("x.grad", x.grad());
        log.attempt("again", [&] { at::relu(x).to_dense().sum().backward(); });
        log.show("x.grad", x.grad());
      },
      Takeover::Some);
}

TEST(AccumulateGrad, LeafThatNoLongerRequiresGrad) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    const auto loss = (x * w).sum();
    x.set_requires_grad(false);
    loss.backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(AccumulateGrad, LeafThatIsGone) {
  expect_same_steps(3, [](Log& log, int) {
    const auto w = leaf({3});
    const auto loss = (leaf({3}) + w).sum();
    loss.backward();
    log.show("w.grad", w.grad());
  });
}

TEST(AccumulateGrad, LeafWhoseDataWasReplaced) {
  expect_same([](Log& log) {
    const auto x = leaf({3});
    for (int step = 0; step < 4; ++step) {
      x.mutable_grad().reset();
      x.set_data(at::randn({3 + step}));
      log.attempt("backward", [&] { x.sin().sum().backward(); });
      log.show("x.grad", x.grad());
    }
  });
}

}  // namespace
}  // namespace hindcast::tests
