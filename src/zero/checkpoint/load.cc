// Loading at any world size, and looking at checkpoints without an engine.
#include <fmt/format.h>

#include "shardcomm/checkpoint.h"
#include "zero/agree.h"
#include "zero/checkpoint/reader.h"
#include "zero/checkpoint/safetensors.h"
#include "zero/unit.h"

namespace shardcomm {
namespace {

using zero::CheckpointReader;
using zero::Manifest;

std::string text(const std::vector<size_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Status match_tensor(const Manifest& manifest, const std::string& name, const std::vector<size_t>& shape) {
  const auto found = manifest.tensors.find(name);
  if (found == manifest.tensors.end())
    return Status(Code::kInvalidArgument, fmt::format("the checkpoint has no {}", name));
  if (found->second.shape == shape) return {};
  return Status(Code::kInvalidArgument, fmt::format("{} has shape {} in the checkpoint, {} in the model", name,
                                                    text(found->second.shape), text(shape)));
}

// Every parameter of the model, with moments where it is trained; and no others. Moments of what is frozen now are
// left where they are.
Status match(const Manifest& manifest, std::span<const UnitSpec> units) {
  std::map<std::string, bool> expected;
  for (const UnitSpec& unit : units) {
    for (uint32_t p = 0; p < unit.parameters.size(); ++p) {
      const ParameterSpec& spec = unit.parameters[p];
      if (!spec.tied_to.empty()) continue;
      const std::string name = zero::full_name(unit, p);
      SHARDCOMM_TRY(match_tensor(manifest, name, spec.shape));
      for (const char* suffix : {"/m", "/v"}) {
        if (spec.trainable) SHARDCOMM_TRY(match_tensor(manifest, name + suffix, spec.shape));
        expected[name + suffix] = true;
      }
      expected[name] = true;
    }
  }
  for (const auto& [name, unused] : manifest.tensors) {
    if (!expected.contains(name)) return Status(Code::kInvalidArgument, fmt::format("the model has no {}", name));
  }
  return {};
}

Status read_into(const CheckpointReader& reader, ZeroEngine& engine, AdamW& optimizer) {
  Status read;
  SHARDCOMM_TRY(engine.fill_parameters([&](UnitId unit, uint32_t parameter, size_t offset, std::span<float> values) {
    if (read.ok()) read = reader.read(zero::full_name(engine.units()[unit], parameter), offset, values);
  }));
  for (size_t i = 0; i < engine.pieces().size(); ++i) {
    const ShardPiece& piece = engine.pieces()[i];
    const MomentPiece& moments = optimizer.pieces()[i];
    if (moments.m == nullptr) continue;
    const std::string name = zero::full_name(engine.units()[piece.unit], piece.parameter);
    if (read.ok()) read = reader.read(name + "/m", piece.offset, {moments.m, piece.count});
    if (read.ok()) read = reader.read(name + "/v", piece.offset, {moments.v, piece.count});
  }
  return read;
}

Result<LoadedCheckpoint> load(ZeroEngine& engine, AdamW& optimizer, const std::string& path) {
  Communicator& comm = engine.communicator();
  const auto rank = static_cast<size_t>(comm.rank()), size = static_cast<size_t>(comm.size());
  auto reader = CheckpointReader::open(path);
  Status fits = reader.status();
  if (fits.ok()) fits = match(reader->manifest(), engine.units());
  // Each rank checks a part of the bytes, before anything is overwritten.
  if (fits.ok()) fits = reader->verify(rank, size);
  SHARDCOMM_TRY(zero::agree(comm, fits));
  const Manifest& manifest = reader->manifest();
  const std::vector<zero::Field> same = {{"the step", manifest.step},
                                         {"the generation", manifest.generation},
                                         {"the number of optimizer steps", manifest.optimizer_steps}};
  SHARDCOMM_TRY(zero::agree_on(comm, same, "checkpoints read"));
  if (Status read = zero::agree(comm, read_into(reader.value(), engine, optimizer)); !read.ok()) {
    return read.context("overwriting parameters, which are now of no use");
  }
  optimizer.set_steps(manifest.optimizer_steps);
  return LoadedCheckpoint{manifest.step, manifest.trainer_state};
}

}  // namespace

Result<LoadedCheckpoint> load_checkpoint(ZeroEngine& engine, AdamW& optimizer, const std::string& path) {
  auto loaded = load(engine, optimizer, path);
  if (!loaded.ok()) return loaded.status().context(fmt::format("loading checkpoint {}", path));
  return loaded;
}

Result<CheckpointInfo> inspect_checkpoint(const std::string& path) {
  SHARDCOMM_TRY_ASSIGN(const CheckpointReader reader, CheckpointReader::open(path));
  const Manifest& manifest = reader.manifest();
  CheckpointInfo info{.step = manifest.step,
                      .world_size = manifest.world_size,
                      .total_bytes = static_cast<size_t>(reader.total_bytes()),
                      .tensors = {},
                      .files = reader.files(),
                      .trainer_state = manifest.trainer_state};
  for (const auto& [name, tensor] : manifest.tensors) info.tensors.push_back({name, tensor.shape, "F32"});
  return info;
}

Status verify_checkpoint(const std::string& path) {
  SHARDCOMM_TRY_ASSIGN(const CheckpointReader reader, CheckpointReader::open(path));
  return reader.verify(0, 1);
}

Result<std::vector<float>> read_checkpoint_parameter(const std::string& path, const std::string& name) {
  SHARDCOMM_TRY_ASSIGN(const CheckpointReader reader, CheckpointReader::open(path));
  const Manifest& manifest = reader.manifest();
  const auto tied = manifest.tied.find(name);
  const std::string& stored = tied == manifest.tied.end() ? name : tied->second;
  const auto tensor = manifest.tensors.find(stored);
  if (tensor == manifest.tensors.end()) {
    return Status(Code::kInvalidArgument, fmt::format("checkpoint {} has no parameter {}", path, name));
  }
  SHARDCOMM_TRY(reader.verify_tensor(stored));
  size_t count = 0;
  zero::count_elements(tensor->second.shape, count);
  std::vector<float> values(count);
  SHARDCOMM_TRY(reader.read(stored, 0, values));
  return values;
}

}  // namespace shardcomm
