// The trainer's model against reference GPT-2 in f64 (reference.h), which is itself checked by differences.
#include "tools/trainer/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/trainer/reference.h"
#include "tools/trainer/gpt2.h"

namespace shardcomm::trainer {
namespace {

using reference::loss_and_gradient;

uint64_t fresh_seed() {
  static const uint64_t seed = std::random_device{}();
  return seed;
}

// A model, its parameters with guard elements around them, and gradients that already hold something.
class Bench {
 public:
  static constexpr size_t kGuard = 16;
  static constexpr float kGuardValue = 1234.5f;

  Bench(ModelConfig config, ModelOptions options, uint64_t seed) : config_(config), rng_(seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    auto made = make_model(config, options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    model_ = std::move(made).value();
    for (const UnitInfo& unit : model_->units()) {
      for (const ParameterInfo& info : unit.parameters) add(unit, info);
    }
  }

  Model& model() { return *model_; }
  reference::Shape shape() const { return {config_.layers, config_.heads, config_.channels, config_.vocab}; }
  const std::vector<std::string>& names() const { return names_; }

  // Large enough everywhere that no term of a gradient is negligible: biases and norms are not at their initial values.
  void add(const UnitInfo& unit, const ParameterInfo& info) {
    const std::string name = full_name(unit, info);
    if (!info.tied_to.empty()) {
      owner_[name] = info.tied_to;
      return;
    }
    owner_[name] = name;
    names_.push_back(name);
    std::normal_distribution<float> normal(info.init.mean, info.shape.size() == 2 ? 0.25f : 0.3f);
    std::vector<float> values(info.count() + 2 * kGuard, kGuardValue);
    for (size_t i = 0; i < info.count(); ++i) values[kGuard + i] = normal(rng_);
    value_[name] = values;
    std::normal_distribution<float> before(0, 1);
    for (size_t i = 0; i < info.count(); ++i) values[kGuard + i] = before(rng_);
    gradient_[name] = start_[name] = values;
  }

  void clear_gradients() {
    for (auto& [name, g] : gradient_) std::fill(g.begin() + kGuard, g.end() - kGuard, 0.0f);
    start_ = gradient_;
  }

  std::vector<Parameter> parameters(size_t unit, bool backward) {
    std::vector<Parameter> out;
    const UnitInfo& info = model_->units()[unit];
    for (const ParameterInfo& p : info.parameters) {
      const std::string& owner = owner_.at(full_name(info, p));
      out.push_back({value_[owner].data() + kGuard, backward ? gradient_[owner].data() + kGuard : nullptr, p.count()});
    }
    return out;
  }

  void forward(const Batch& batch) {
    const Status begun = model_->begin(batch);
    ASSERT_TRUE(begun.ok()) << begun.to_string();
    for (size_t unit = 0; unit < model_->units().size(); ++unit) {
      const Status status = model_->forward(unit, parameters(unit, false));
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  }

  void backward() {
    for (size_t unit = model_->units().size(); unit-- > 0;) {
      const Status status = model_->backward(unit, parameters(unit, true));
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  }

  // What the last backward passes added, without guards.
  std::vector<double> added(const std::string& name) const {
    const auto& now = gradient_.at(name);
    const auto& then = start_.at(name);
    std::vector<double> out;
    for (size_t i = kGuard; i + kGuard < now.size(); ++i) out.push_back(double{now[i]} - double{then[i]});
    return out;
  }
  const std::map<std::string, std::vector<float>>& gradients() const { return gradient_; }

  reference::Parameters<double> values() const {
    reference::Parameters<double> out;
    for (const auto& [name, v] : value_) out[name].assign(v.begin() + kGuard, v.end() - kGuard);
    return out;
  }

  void expect_guards_intact() const {
    for (const auto* map : {&value_, &gradient_}) {
      for (const auto& [name, v] : *map) {
        const auto intact = [](float x) { return x == kGuardValue; };
        EXPECT_TRUE(std::all_of(v.begin(), v.begin() + kGuard, intact)) << name;
        EXPECT_TRUE(std::all_of(v.end() - kGuard, v.end(), intact)) << name;
      }
    }
  }

 private:
  ModelConfig config_;
  std::mt19937_64 rng_;
  std::unique_ptr<Model> model_;
  std::vector<std::string> names_;
  std::map<std::string, std::string> owner_;
  std::map<std::string, std::vector<float>> value_, gradient_, start_;
};

struct Text {
  std::vector<std::vector<int32_t>> tokens, targets;
  std::vector<int32_t> flat_tokens, flat_targets;
  size_t valid = 0;

  Batch batch(float scale = 1) const {
    return {.sequences = tokens.size(),
            .length = tokens.empty() ? 0 : tokens[0].size(),
            .tokens = flat_tokens,
            .targets = flat_targets,
            .gradient_scale = scale};
  }
};

// Random text in which about every fifth target is ignored, but not the first.
Text random_text(size_t sequences, size_t length, size_t vocab, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(vocab) - 1);
  Text text;
  for (size_t s = 0; s < sequences; ++s) {
    text.tokens.emplace_back();
    text.targets.emplace_back();
    for (size_t t = 0; t < length; ++t) {
      text.tokens.back().push_back(token(rng));
      text.targets.back().push_back(t > 0 && rng() % 5 == 0 ? -1 : token(rng));
      text.valid += text.targets.back().back() >= 0;
    }
    text.flat_tokens.insert(text.flat_tokens.end(), text.tokens.back().begin(), text.tokens.back().end());
    text.flat_targets.insert(text.flat_targets.end(), text.targets.back().begin(), text.targets.back().end());
  }
  return text;
}

const ModelConfig kSmall{.layers = 2, .heads = 3, .channels = 12, .seq = 9, .vocab = 31};

double largest(const std::vector<double>& v) {
  double m = 0;
  for (const double x : v) m = std::max(m, std::fabs(x));
  return m;
}

// An f32 product of n terms errs by about sqrt(n) * 2^-24 of its size, and a gradient passes some ten such stages per
// layer, whose errors add like random ones: with n up to 48 and 2 layers about 2e-6 of the largest element (100 seeds
// stayed below that). The start value, of size 1, is added and subtracted again, which costs 2^-24 absolutely. A wrong
// term is off by 1e-2.
void expect_near_reference(const Bench& bench, const reference::LossAndGradient& expected, double scale) {
  for (const std::string& name : bench.names()) {
    const std::vector<double> got = bench.added(name);
    std::vector<double> want = expected.gradient.at(name);
    ASSERT_EQ(got.size(), want.size()) << name;
    for (double& w : want) w *= scale;
    ASSERT_GT(largest(want), 0) << name << ": the test would show nothing";
    double worst = 0;
    for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::fabs(got[i] - want[i]));
    EXPECT_LE(worst, 5e-6 * largest(want) + 5e-7) << name << " is off by " << worst << " of " << largest(want);
  }
}

TEST(TrainerReference, GradientAgreesWithCentralDifferences) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Bench bench(kSmall, {.sequences = 2}, seed);
  const Text text = random_text(2, 7, kSmall.vocab, seed);
  const reference::Shape shape = bench.shape();
  reference::Parameters<double> p = bench.values();
  const auto exact = loss_and_gradient(shape, p, text.tokens, text.targets);
  std::mt19937_64 rng(seed + 1);
  for (const std::string& name : bench.names()) {
    for (int repeat = 0; repeat < 5; ++repeat) {
      double& element = p.at(name)[rng() % p.at(name).size()];
      const auto index = static_cast<size_t>(&element - p.at(name).data());
      const double kept = element;
      const double h = 1e-5;  // truncation h^2 and rounding 1e-16 / h are both near 1e-10
      element = kept + h;
      const double above = reference::loss(shape, p, text.tokens, text.targets);
      element = kept - h;
      const double below = reference::loss(shape, p, text.tokens, text.targets);
      element = kept;
      const double g = exact.gradient.at(name)[index];
      EXPECT_NEAR((above - below) / (2 * h), g, 1e-6 * std::max(1.0, std::fabs(g))) << name << "[" << index << "]";
    }
  }
}

struct Case {
  ModelConfig config;
  size_t sequences;
  size_t length;
  bool recompute;
};

class ModelAndReference : public testing::TestWithParam<Case> {};

TEST_P(ModelAndReference, AgreeInLossAndEveryGradient) {
  const auto& [config, sequences, length, recompute] = GetParam();
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Bench bench(config, {.sequences = sequences + 1, .recompute_blocks = recompute}, seed);
  // Leave other values behind in every activation, as an earlier batch does.
  bench.forward(random_text(sequences + 1, config.seq, config.vocab, seed + 7).batch());
  const Text text = random_text(sequences, length, config.vocab, seed);
  const double scale = 1.0 / static_cast<double>(text.valid);
  bench.forward(text.batch(static_cast<float>(scale)));
  const auto expected = loss_and_gradient(bench.shape(), bench.values(), text.tokens, text.targets);
  EXPECT_EQ(bench.model().loss().tokens, text.valid);
  EXPECT_NEAR(bench.model().loss().sum, expected.loss, 1e-6 * expected.loss);
  bench.clear_gradients();
  bench.backward();
  expect_near_reference(bench, expected, scale);
  bench.expect_guards_intact();
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ModelAndReference,
    testing::Values(
        Case{kSmall, 2, 7, false}, Case{kSmall, 2, 7, true}, Case{kSmall, 1, 1, false}, Case{kSmall, 3, 9, false},
        Case{{.layers = 1, .heads = 1, .channels = 5, .seq = 70, .vocab = 3}, 1, 70, false},  // blocks + rest
        Case{{.layers = 1, .heads = 2, .channels = 6, .seq = 64, .vocab = 2}, 2, 33, true}));

TEST(Model, GradientsAreAddedToWhatIsThere) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Bench bench(kSmall, {.sequences = 2}, seed);  // gradients start as random numbers of size 1
  const Text text = random_text(2, 7, kSmall.vocab, seed);
  bench.forward(text.batch());
  bench.backward();
  expect_near_reference(bench, loss_and_gradient(bench.shape(), bench.values(), text.tokens, text.targets), 1);
}

TEST(Model, MicroBatchesAddUpToTheBatch) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Bench bench(kSmall, {.sequences = 2}, seed);
  const Text first = random_text(2, 7, kSmall.vocab, seed);
  const Text second = random_text(1, 4, kSmall.vocab, seed + 1);  // smaller and shorter
  const auto scale = 1.0f / static_cast<float>(first.valid + second.valid);
  bench.clear_gradients();
  double sum = 0;
  for (const Text* text : {&first, &second}) {
    bench.forward(text->batch(scale));
    bench.backward();
    sum += bench.model().loss().sum;
  }
  std::vector<std::vector<int32_t>> tokens = first.tokens, targets = first.targets;
  tokens.push_back(second.tokens[0]);
  targets.push_back(second.targets[0]);
  const auto expected = loss_and_gradient(bench.shape(), bench.values(), tokens, targets);
  EXPECT_NEAR(sum, expected.loss, 1e-6 * expected.loss);
  expect_near_reference(bench, expected, double{scale});
}

TEST(Model, RecomputingBlocksGivesTheSameBitsInLessMemory) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const ModelConfig config{.layers = 5, .heads = 2, .channels = 16, .seq = 40, .vocab = 31};
  Bench kept(config, {.sequences = 2}, seed);
  Bench recomputed(config, {.sequences = 2, .recompute_blocks = true}, seed);
  const Text text = random_text(2, 37, config.vocab, seed);
  for (Bench* bench : {&kept, &recomputed}) {
    bench->clear_gradients();
    bench->forward(text.batch(0.01f));
    bench->backward();
  }
  EXPECT_EQ(kept.model().loss().sum, recomputed.model().loss().sum);
  EXPECT_EQ(kept.gradients(), recomputed.gradients());
  EXPECT_LT(recomputed.model().activation_bytes(), kept.model().activation_bytes() / 2);
}

TEST(Model, NothingValidContributesNothing) {
  const uint64_t seed = fresh_seed();
  Bench bench(kSmall, {.sequences = 2}, seed);
  Text ignored = random_text(2, 7, kSmall.vocab, seed);
  std::fill(ignored.flat_targets.begin(), ignored.flat_targets.end(), -100);
  for (const Text& text : {ignored, Text{}}) {
    const auto before = bench.gradients();
    bench.forward(text.batch());
    EXPECT_EQ(bench.model().loss().sum, 0);
    EXPECT_EQ(bench.model().loss().tokens, 0u);
    bench.backward();
    EXPECT_EQ(bench.gradients(), before);
  }
}

TEST(Model, LogitsAgreeAndDoNotSeeTheFuture) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Bench bench(kSmall, {.sequences = 1}, seed);
  Text text = random_text(1, 9, kSmall.vocab, seed);
  text.flat_targets.clear();
  bench.forward(text.batch());
  const std::vector<float> before(bench.model().logits().begin(), bench.model().logits().end());
  const auto expected = reference::logits(bench.shape(), bench.values(), text.tokens[0]);
  ASSERT_EQ(before.size(), 9 * kSmall.vocab);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(before[i], expected[i / kSmall.vocab][i % kSmall.vocab], 2e-5) << i;
  }
  for (int32_t& token : text.flat_tokens) {
    if (&token != text.flat_tokens.data()) token = (token + 1) % static_cast<int32_t>(kSmall.vocab);
  }
  bench.forward(text.batch());
  const auto after = bench.model().logits();
  const auto same = [&](size_t first, size_t count) {
    return std::ranges::equal(std::span(before).subspan(first, count), after.subspan(first, count));
  };
  EXPECT_TRUE(same(0, kSmall.vocab)) << "the first position moved";
  for (size_t t = 1; t < 9; ++t) EXPECT_FALSE(same(t * kSmall.vocab, kSmall.vocab)) << "position " << t << " did not";
  const Status status = bench.model().backward(0, bench.parameters(0, true));
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
}

TEST(Model, UnitsDescribeEveryParameter) {
  Bench bench(kSmall, {}, 1);
  const auto units = bench.model().units();
  ASSERT_EQ(units.size(), kSmall.layers + 2);
  EXPECT_EQ(units.front().name, "embedding");
  EXPECT_EQ(units[1].name, "h.0");
  EXPECT_EQ(units.back().name, "head");
  uint64_t distinct = 0;
  for (const UnitInfo& unit : units) {
    for (const ParameterInfo& p : unit.parameters) {
      EXPECT_EQ(p.decay, p.shape.size() == 2) << p.name;
      if (p.tied_to.empty()) distinct += p.count();
    }
  }
  EXPECT_EQ(distinct, parameter_count(kSmall));
  const ParameterInfo& projection = units[1].parameters[4];
  EXPECT_EQ(projection.name, "attn.c_proj.weight");
  EXPECT_FLOAT_EQ(projection.init.stddev, 0.0912871f);  // sqrt(2 / (5 * 12)) / sqrt(2 * 2)

  const std::vector<UnitSpec> specs = zero_units(units, DType::kF32);
  ASSERT_EQ(specs.size(), units.size());
  EXPECT_EQ(specs.back().parameters[2].tied_to, "embedding.wte.weight");
  EXPECT_EQ(specs[1].parameters[0].decay_factor, 0);
  EXPECT_EQ(specs[1].parameters[2].decay_factor, 1);
  EXPECT_EQ(specs[1].parameters[2].shape, (std::vector<size_t>{12, 36}));
  EXPECT_EQ(parameter_count({}), 842624u);  // the demo's model: 257, 128 x 128, 4 blocks, final norm
}

TEST(Model, RefusesWhatDoesNotFit) {
  Bench bench(kSmall, {.sequences = 2}, 1);
  const auto refused = [&](const Batch& batch, const char* what) {
    const Status status = bench.model().begin(batch);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.to_string().find(what), std::string::npos) << status.to_string();
  };
  refused(random_text(3, 7, 31, 1).batch(), "3 sequences, at most 2");
  refused(random_text(2, 10, 31, 1).batch(), "10 tokens, at most 9");
  Text text = random_text(2, 7, 31, 1);
  text.flat_tokens[3] = 31;
  refused(text.batch(), "token 31");
  text.flat_tokens[3] = -1;
  refused(text.batch(), "token -1");
  text.flat_tokens[3] = 0;
  text.flat_targets[4] = 31;
  refused(text.batch(), "target 31");
  text.flat_targets.pop_back();
  refused(text.batch(), "differ");

  text = random_text(2, 7, 31, 1);
  ASSERT_TRUE(bench.model().begin(text.batch()).ok());
  auto parameters = bench.parameters(1, false);
  parameters[2].count -= 1;
  Status status = bench.model().forward(1, parameters);
  EXPECT_NE(status.to_string().find("unit h.0: attn.c_attn.weight has 431 elements, not 432"), std::string::npos)
      << status.to_string();
  parameters.pop_back();
  EXPECT_EQ(bench.model().forward(1, parameters).code(), Code::kInvalidArgument);
  EXPECT_EQ(bench.model().backward(1, bench.parameters(1, false)).code(), Code::kInvalidArgument);
}

TEST(Model, RefusesImpossibleShapes) {
  const auto refused = [](const ModelConfig& config, Code code, const char* what, size_t sequences = 1) {
    const auto made = make_model(config, {.sequences = sequences});
    EXPECT_EQ(made.status().code(), code);
    EXPECT_NE(made.status().to_string().find(what), std::string::npos) << made.status().to_string();
  };
  refused({.heads = 3}, Code::kInvalidArgument, "channels is 128, not a multiple of heads, 3");
  refused({.layers = 0}, Code::kInvalidArgument, "layers is 0");
  refused({.vocab = 70000}, Code::kInvalidArgument, "vocab is 70000");
  refused({.model = "gpt5"}, Code::kInvalidArgument, "the models are: gpt2");
  refused({}, Code::kInvalidArgument, "a batch of 0 sequences", 0);
  refused({.layers = 1024, .channels = 65536, .seq = 1 << 20}, Code::kOutOfMemory, "bytes", 1 << 20);
}

}  // namespace
}  // namespace shardcomm::trainer
