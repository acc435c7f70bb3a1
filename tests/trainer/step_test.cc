// Whole optimizer steps against an independent f64 implementation: the GPT-2 of reference.h, the mean loss, the
// gradient norm, clipping, the learning rate and AdamW with decay of matrices only.
#include <cmath>
#include <numbers>

#include "tests/trainer/reference.h"
#include "tests/trainer/support.h"

namespace shardcomm::trainer {
namespace {

constexpr size_t kGlobalBatch = 4;
constexpr size_t kSteps = 3;
using Values = reference::Parameters<double>;

TrainOptions small_options(const Workplace& workplace) {
  TrainOptions options;
  options.model = {.model = "gpt2", .layers = 2, .heads = 2, .channels = 8, .seq = 6, .vocab = 257};
  options.data.files = {workplace.text()};
  options.data.seq = options.model.seq;
  options.data.seed = options.seed;
  options.learning_rate = {.decay = Decay::kCosine, .peak = 2e-2, .min_ratio = 0.25, .warmup = 2, .steps = 5};
  // An epsilon of the size of gradients: the update then depends on how large they are, not on their sign alone.
  options.adam = {.beta1 = 0.8f, .beta2 = 0.9f, .eps = 1e-2f, .weight_decay = 0.5f};
  return options;
}

bool is_matrix(const std::string& name) {
  for (const char* vector : {"ln_1", "ln_2", "ln_f", "bias"}) {
    if (name.find(vector) != std::string::npos) return false;
  }
  return true;
}

struct ReferenceStep {
  double loss, norm, rate;
  Values after;  // parameters
};

class ReferenceTraining {
 public:
  ReferenceTraining(const TrainOptions& options, Values start) : options_(options), now_(std::move(start)) {
    for (const auto& [name, values] : now_) m_[name] = v_[name] = std::vector<double>(values.size(), 0.0);
  }

  ReferenceStep step(const std::vector<std::vector<int32_t>>& tokens,
                     const std::vector<std::vector<int32_t>>& targets) {
    const ModelConfig& model = options_.model;
    const reference::Shape shape{model.layers, model.heads, model.channels, model.vocab};
    auto [loss, gradient] = reference::loss_and_gradient(shape, now_, tokens, targets);
    const auto valid = static_cast<double>(tokens.size() * model.seq);
    double squares = 0;
    for (const auto& [name, values] : gradient) {
      for (const double g : values) squares += g / valid * (g / valid);
    }
    const double norm = std::sqrt(squares);
    const double clip = options_.clip > 0 && norm > options_.clip ? options_.clip / norm : 1;
    const double rate = this->rate(steps_++);
    for (auto& [name, values] : now_) {
      for (size_t i = 0; i < values.size(); ++i) update(name, i, gradient[name][i] / valid * clip, rate);
    }
    return {loss / valid, norm, rate, now_};
  }

 private:
  double rate(size_t step) const {
    const LearningRate& s = options_.learning_rate;
    const auto t = static_cast<double>(step), warmup = static_cast<double>(s.warmup);
    if (step < s.warmup) return s.peak * (t + 1) / warmup;
    const double part = (t - warmup) / (static_cast<double>(s.steps) - warmup);
    return s.peak * (s.min_ratio + (1 - s.min_ratio) * 0.5 * (1 + std::cos(std::numbers::pi * part)));
  }

  // Loshchilov & Hutter 2019, algorithm 2; the decay is of the parameter before the step.
  void update(const std::string& name, size_t i, double g, double rate) {
    const double beta1 = double{options_.adam.beta1}, beta2 = double{options_.adam.beta2};
    double &m = m_[name][i], &v = v_[name][i], &p = now_[name][i];
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const auto t = static_cast<double>(steps_);
    const double mean = m / (1 - std::pow(beta1, t)), square = v / (1 - std::pow(beta2, t));
    const double decay = is_matrix(name) ? double{options_.adam.weight_decay} : 0;
    p -= rate * (mean / (std::sqrt(square) + double{options_.adam.eps}) + decay * p);
  }

  const TrainOptions options_;
  size_t steps_ = 0;
  Values now_, m_, v_;
};

// All parameters of a step directory, tied ones once.
Values read_parameters(const std::string& path) {
  Values values;
  const auto info = inspect_checkpoint(path);
  EXPECT_TRUE(info.ok()) << info.status().to_string();
  if (!info.ok()) return values;
  for (const CheckpointTensor& tensor : info->tensors) {
    if (tensor.name.ends_with("/m") || tensor.name.ends_with("/v")) continue;
    const auto read = read_checkpoint_parameter(path, tensor.name);
    EXPECT_TRUE(read.ok()) << read.status().to_string();
    if (read.ok()) values[tensor.name].assign(read->begin(), read->end());
  }
  return values;
}

struct TrainedStep {
  StepReport report;
  Values after;
};
struct Trained {
  Values start;
  std::vector<TrainedStep> steps;
};

// With a checkpoint before the first and after every step.
Trained train(TrainOptions options, int ranks) {
  const Workplace saved(0);
  options.save_dir = saved.path() + "/steps";
  options.keep = 0;
  std::vector<std::string> checkpoints;
  std::vector<StepReport> reports;
  const auto outcome = testing::run_ranks(ranks, testing::RankMode::kThreads, [&](testing::RankContext& rank) {
    set_matmul_threads(1);
    Communicator comm = rank.communicator();
    auto trainer = Trainer::create(comm, options);
    ASSERT_TRUE(trainer.ok()) << trainer.status().to_string();
    for (size_t s = 0; s <= kSteps; ++s) {
      Result<StepReport> report = s == 0 ? StepReport{} : (*trainer)->step();
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      const auto path = (*trainer)->save();
      ASSERT_TRUE(path.ok()) << path.status().to_string();
      if (rank.rank() != 0) continue;
      checkpoints.push_back(path.value());
      reports.push_back(report.value());
    }
  });
  Trained trained;
  if (!outcome.ok()) return trained;
  trained.start = read_parameters(checkpoints[0]);
  for (size_t s = 1; s <= kSteps; ++s) trained.steps.push_back({reports[s], read_parameters(checkpoints[s])});
  return trained;
}

// Rounding of f32 gradients weighs g / epsilon at most; parameters themselves are f32.
void expect_close(const Values& got, const Values& expected, double rate) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, values] : expected) {
    const auto& mine = got.at(name);
    ASSERT_EQ(mine.size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(mine[i], values[i], 1e-4 * rate + 1e-7 * std::abs(values[i])) << name << "[" << i << "]";
  }
}

struct StepCase {
  int stage, ranks;
  double clip;
};

class TrainerStep : public ::testing::TestWithParam<StepCase> {};

TEST_P(TrainerStep, IsThatOfTheReference) {
  const StepCase& one = GetParam();
  const Workplace workplace(20);
  TrainOptions options = small_options(workplace);
  options.clip = one.clip;
  options.zero.stage = one.stage;
  options.zero.bucket_bytes = 1024;
  options.batch = kGlobalBatch / static_cast<size_t>(one.ranks);
  const Trained trained = train(options, one.ranks);
  ASSERT_EQ(trained.steps.size(), kSteps);
  ASSERT_EQ(trained.start.size(), 2u + 12 * 2 + 2);

  const auto data = Data::load(options.data, ByteTokenizer());
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  ReferenceTraining reference(options, trained.start);
  for (size_t s = 0; s < kSteps; ++s) {
    SCOPED_TRACE("step " + std::to_string(s + 1));
    Samples samples;
    data->train(s * kGlobalBatch, kGlobalBatch, &samples);
    std::vector<std::vector<int32_t>> tokens, targets;
    for (size_t i = 0; i < kGlobalBatch; ++i) {
      const auto cut = [&](const std::vector<int32_t>& all) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i * options.model.seq);
        return std::vector<int32_t>(begin, begin + static_cast<std::ptrdiff_t>(options.model.seq));
      };
      tokens.push_back(cut(samples.tokens));
      targets.push_back(cut(samples.targets));
    }
    const ReferenceStep expected = reference.step(tokens, targets);
    const auto& [report, after] = trained.steps[s];
    EXPECT_NEAR(report.loss, expected.loss, 1e-6 * expected.loss);
    EXPECT_NEAR(report.gradient_norm, expected.norm, 1e-5 * expected.norm);
    EXPECT_NEAR(report.learning_rate, expected.rate, 1e-12);
    EXPECT_EQ(report.step_tokens, kGlobalBatch * options.model.seq);
    EXPECT_GT(expected.norm, one.clip) << "clipping, where it is on, does something";
    expect_close(after, expected.after, expected.rate);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Trainer, TrainerStep,
                         ::testing::Values(StepCase{3, 1, 0.5}, StepCase{3, 2, 0.5}, StepCase{2, 2, 0.5},
                                           StepCase{1, 2, 0.5}, StepCase{0, 2, 0.5}, StepCase{3, 2, 0}),
                         [](const auto& info) {
                           return "Stage" + std::to_string(info.param.stage) + "Ranks" +
                                  std::to_string(info.param.ranks) + (info.param.clip > 0 ? "Clipped" : "");
                         });

}  // namespace
}  // namespace shardcomm::trainer
