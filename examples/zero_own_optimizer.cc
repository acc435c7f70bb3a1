// Trains a linear layer with an optimizer of one's own (lion.h) on two ranks, which are threads here, at every ZeRO
// stage, with f32 and with bf16 parameters; from stage 1 on it is saved halfway, optimizer and all, and resumed in a
// new engine. All stages must end with the same loss, to the last bit.
#include <shardcomm/shardcomm.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lion.h"

namespace {

using namespace shardcomm;

constexpr int kRanks = 2;
constexpr int kSteps = 200;
constexpr size_t kInputs = 24, kOutputs = 10, kSamples = 16;  // samples of one rank

// Numbers in [-1, 1) that depend on their place only.
float noise(size_t i, size_t j) {
  const auto mixed = static_cast<uint32_t>((i * 7919 + j * 104729 + 17) * 2654435761u);
  return static_cast<float>(mixed >> 8) / 8388608.0f - 1;
}

// Element i of a parameter, whatever its dtype.
float element(const ParameterView& view, size_t i) {
  if (view.dtype == DType::kF32) return reinterpret_cast<const float*>(view.value)[i];
  return std::bit_cast<float>(static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(view.value)[i]) << 16);
}

// Squared error of y = Wx + b on this rank's samples, summed; adds its gradients.
double forward_and_backward(std::span<const ParameterView> layer, Rank rank) {
  const ParameterView& w = layer[0];
  const ParameterView& b = layer[1];
  auto* dw = reinterpret_cast<float*>(w.gradient);
  auto* db = reinterpret_cast<float*>(b.gradient);
  double loss = 0;
  for (size_t s = static_cast<size_t>(rank) * kSamples; s < (static_cast<size_t>(rank) + 1) * kSamples; ++s) {
    for (size_t o = 0; o < kOutputs; ++o) {
      float y = element(b, o), target = noise(o, 1000);
      for (size_t i = 0; i < kInputs; ++i) {
        y += element(w, o * kInputs + i) * noise(s, i);
        target += noise(o, i) * noise(s, i);
      }
      const float error = y - target;
      loss += 0.5 * static_cast<double>(error) * static_cast<double>(error);
      db[o] += error;
      for (size_t i = 0; i < kInputs; ++i) dw[o * kInputs + i] += error * noise(s, i);
    }
  }
  return loss;
}

// A new engine with its optimizer, with what was saved in `directory` if that is not empty.
struct Trainee {
  ZeroEngine engine;
  Lion lion;
};
Result<std::unique_ptr<Trainee>> make_trainee(Communicator& comm, int stage, DType dtype,
                                              const std::string& directory) {
  const std::vector<UnitSpec> units = {{"layer",
                                        {{.name = "w", .shape = {kOutputs, kInputs}, .dtype = dtype},
                                         {.name = "b", .shape = {kOutputs}, .dtype = dtype, .decay_factor = 0}}}};
  SHARDCOMM_TRY_ASSIGN(ZeroEngine engine, ZeroEngine::create(comm, units, {.stage = stage}));
  SHARDCOMM_TRY(engine.fill_parameters([](UnitId, uint32_t, size_t, std::span<float> values) {
    for (float& value : values) value = 0;
  }));
  Lion lion(engine, {.weight_decay = 0.001f});
  if (!directory.empty()) {
    SHARDCOMM_TRY_ASSIGN(const std::string path, newest_checkpoint(directory));
    SHARDCOMM_TRY(load_checkpoint(engine, path, {.states = lion.states()}).status());
  }
  return std::make_unique<Trainee>(Trainee{std::move(engine), std::move(lion)});
}

// The losses of all ranks together, before the first step and before the last. `directory`: where to save halfway.
Result<std::array<double, 2>> train(Rank rank, int stage, DType dtype, const std::string& directory) {
  SHARDCOMM_TRY_ASSIGN(const Options options, Options::parse("timeout_ms=20000"));
  SHARDCOMM_TRY_ASSIGN(const auto store,
                       open_store("local://own-optimizer-" + std::to_string(stage) + std::string(name(dtype))));
  SHARDCOMM_TRY_ASSIGN(Communicator comm, Communicator::create(*store, {rank, kRanks}, options));
  SHARDCOMM_TRY_ASSIGN(auto trainee, make_trainee(comm, stage, dtype, ""));

  std::array<double, 2> losses{};
  for (int step = 0; step < kSteps; ++step) {
    if (step == kSteps / 2 && !directory.empty()) {
      SHARDCOMM_TRY(
          save_checkpoint(trainee->engine, directory, static_cast<uint64_t>(step), {.states = trainee->lion.states()})
              .status());
      SHARDCOMM_TRY_ASSIGN(trainee, make_trainee(comm, stage, dtype, directory));
    }
    ZeroEngine& engine = trainee->engine;
    double mine = 0, all = 0;
    {
      // A single unit needs no forward pass of its own here.
      SHARDCOMM_TRY_ASSIGN(const UnitScope layer, UnitScope::enter(engine, 0, Pass::kBackward, StreamRef::caller()));
      mine = forward_and_backward(layer.parameters(), rank);
    }
    SHARDCOMM_TRY(engine.finish_step(StreamRef::caller()));
    SHARDCOMM_TRY(trainee->lion.step(0.05f * static_cast<float>(kSteps - step) / kSteps));
    SHARDCOMM_TRY(comm.all_reduce({&mine, &all, 1, DType::kF64}, StreamRef::caller()).status());
    if (step == 0) losses[0] = all;
    losses[1] = all;
  }
  return losses;
}

// On all ranks; that of rank 0.
Result<std::array<double, 2>> train_everywhere(int stage, DType dtype) {
  std::string directory;
  if (stage > 0) directory = std::filesystem::temp_directory_path() / ("own-optimizer-" + std::to_string(getpid()));
  Result<std::array<double, 2>> first = std::array<double, 2>{}, second = first;
  std::thread other([&] { second = train(1, stage, dtype, directory); });
  first = train(0, stage, dtype, directory);
  other.join();
  if (stage > 0) std::filesystem::remove_all(directory);
  SHARDCOMM_TRY(second.status());
  return first;
}

}  // namespace

int main() {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::array<double, 2> expected{};
    for (int stage = 0; stage <= 3; ++stage) {
      auto losses = train_everywhere(stage, dtype);
      if (!losses.ok()) return std::fprintf(stderr, "%s\n", losses.status().to_string().c_str()), 1;
      const auto [before, after] = *losses;
      std::printf("%s, stage %d: loss %.6f, after %d steps %.6f\n", std::string(name(dtype)).c_str(), stage, before,
                  kSteps, after);
      if (stage == 0) expected = *losses;
      if (*losses != expected) return std::fprintf(stderr, "the stages differ\n"), 1;
      if (!(after < before / 10)) return std::fprintf(stderr, "it has not learned\n"), 1;
    }
  }
}
