// Saving: every rank writes what it owns; when all have it on disk, rank 0 writes the manifest.
#include <fmt/format.h>
#include <xxhash.h>

#include <memory>
#include <numeric>

#include "base/hash.h"
#include "base/log.h"
#include "kernels/kernels.h"
#include "shardcomm/checkpoint.h"
#include "zero/agree.h"
#include "zero/checkpoint/directory.h"
#include "zero/checkpoint/file_io.h"
#include "zero/checkpoint/manifest.h"
#include "zero/checkpoint/safetensors.h"
#include "zero/checkpoint/states.h"
#include "zero/unit.h"

namespace shardcomm {
namespace {

using zero::File;
using zero::Manifest;
using zero::ManifestPiece;

// A run of a tensor's elements; f32, or bf16 that is widened on the way.
struct SourceRun {
  size_t offset;
  size_t count;
  const float* values;
  const uint16_t* narrow;
};
// The part of one tensor that this rank writes.
struct Source {
  std::string tensor;
  std::vector<size_t> shape;  // of the whole tensor
  std::vector<SourceRun> runs;

  size_t count() const {
    return std::accumulate(runs.begin(), runs.end(), size_t{0},
                           [](size_t sum, const SourceRun& run) { return sum + run.count; });
  }
};

// Stage 0 has everything on every rank: each writes an equal part.
std::pair<size_t, size_t> part_to_write(const ZeroEngine& engine, const ShardPiece& piece) {
  if (zero::traits_of(engine.options().stage, engine.communicator().size()).shards_updates) return {0, piece.count};
  const auto rank = static_cast<size_t>(engine.communicator().rank());
  const auto size = static_cast<size_t>(engine.communicator().size());
  const size_t share = piece.count / size, rest = piece.count % size;
  const size_t begin = rank * share + std::min(rank, rest);
  return {begin, begin + share + (rank < rest ? 1 : 0)};
}

// Adds the part of a piece that this rank writes; `values` or `narrow` is one of the piece's arrays.
void add_run(Source& source, const ShardPiece& piece, std::pair<size_t, size_t> part, const float* values,
             const uint16_t* narrow) {
  source.runs.push_back({.offset = piece.offset + part.first,
                         .count = part.second - part.first,
                         .values = values == nullptr ? nullptr : values + part.first,
                         .narrow = narrow == nullptr ? nullptr : narrow + part.first});
}

// Adds what this rank writes of a value: its f32 master, or what has none because it is frozen.
void add_value_run(Source& source, const ShardPiece& piece, std::pair<size_t, size_t> part, DType dtype) {
  if (piece.master != nullptr) {
    add_run(source, piece, part, piece.master, nullptr);
  } else if (dtype == DType::kBF16) {
    add_run(source, piece, part, nullptr, reinterpret_cast<const uint16_t*>(piece.value));
  } else {
    add_run(source, piece, part, reinterpret_cast<const float*>(piece.value), nullptr);
  }
}

// Adds what this rank writes of the parameter whose pieces are [first, last): its values, and its states if it is
// trainable.
void add_sources(const ZeroEngine& engine, const std::vector<NamedState>& states, size_t first, size_t last,
                 std::vector<Source>& sources) {
  const ShardPiece& any = engine.pieces()[first];
  const UnitSpec& unit = engine.units()[any.unit];
  const ParameterSpec& spec = unit.parameters[any.parameter];
  const std::string name = zero::full_name(unit, any.parameter);
  std::vector<Source> found = {{.tensor = name, .shape = spec.shape, .runs = {}}};
  for (const NamedState& state : states) found.push_back({zero::state_tensor(name, state.name), spec.shape, {}});
  for (size_t i = first; i < last; ++i) {
    const ShardPiece& piece = engine.pieces()[i];
    const auto part = part_to_write(engine, piece);
    if (part.first == part.second) continue;
    add_value_run(found[0], piece, part, spec.dtype);
    for (size_t s = 0; s < states.size() && piece.master != nullptr; ++s) {
      add_run(found[s + 1], piece, part, states[s].values.data() + piece.state_offset, nullptr);
    }
  }
  for (Source& source : found) {
    if (!source.runs.empty()) sources.push_back(std::move(source));
  }
}

std::vector<Source> sources_of(const ZeroEngine& engine, const std::vector<NamedState>& states) {
  std::vector<Source> sources;
  const auto pieces = engine.pieces();
  for (size_t first = 0, last = 0; first < pieces.size(); first = last) {
    const auto same = [&](const ShardPiece& piece) {
      return piece.unit == pieces[first].unit && piece.parameter == pieces[first].parameter;
    };
    while (last < pieces.size() && same(pieces[last])) ++last;
    add_sources(engine, states, first, last, sources);
  }
  return sources;
}

Status widen(const uint16_t* narrow, float* wide, size_t count) {
  const kernels::CastLaunch cast{
      .source = narrow, .source_dtype = DType::kBF16, .target = wide, .target_dtype = DType::kF32, .count = count};
  return kernels::launch(cast, StreamRef::caller());
}

// Appends one run and gives its checksum.
Result<uint64_t> write_run(File& file, const SourceRun& source) {
  constexpr size_t kChunk = size_t{1} << 20;  // elements
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  if (state == nullptr) return Status(Code::kOutOfMemory, "no memory for a checksum");
  XXH3_64bits_reset(state.get());
  std::vector<float> wide(source.narrow == nullptr ? 0 : std::min(kChunk, source.count));
  for (size_t done = 0; done < source.count; done += kChunk) {
    const size_t count = std::min(kChunk, source.count - done);
    if (source.narrow != nullptr) SHARDCOMM_TRY(widen(source.narrow + done, wide.data(), count));
    const std::span<const float> values(source.narrow != nullptr ? wide.data() : source.values + done, count);
    XXH3_64bits_update(state.get(), values.data(), values.size_bytes());
    SHARDCOMM_TRY(file.write(std::as_bytes(values)));
  }
  return XXH3_64bits_digest(state.get());
}

// Tells people and other programs which elements of the whole tensor these are: "offset 6 of 2x5", or, if the file has
// several runs one behind the other, "offsets 0 (count 2), 6 (count 3) of 2x5".
std::string describe(const Source& source) {
  const std::string shape = fmt::format("{}", fmt::join(source.shape, "x"));
  if (source.runs.size() == 1) return fmt::format("offset {} of {}", source.runs.front().offset, shape);
  std::string runs;
  for (const SourceRun& run : source.runs) {
    runs += fmt::format("{}{} (count {})", runs.empty() ? "" : ", ", run.offset, run.count);
  }
  return fmt::format("offsets {} of {}", runs, shape);
}

// Data on disk; gives what the manifest needs to know of it.
Result<std::string> write_shard(const std::string& directory, const std::string& name,
                                const std::vector<Source>& sources) {
  zero::ShardReport report;
  if (sources.empty()) return zero::report_to_text(report);
  std::vector<zero::StoredTensor> tensors;
  std::map<std::string, std::string> metadata = {{"format", "shardcomm"}};
  for (const Source& source : sources) {
    tensors.push_back({source.tensor, "F32", {source.count()}, 0, 0});
    metadata[source.tensor] = describe(source);
  }
  SHARDCOMM_TRY_ASSIGN(const std::string head, zero::build_safetensors_header(tensors, metadata));
  report.file = name;
  report.head = {head.size(), XXH3_64bits(head.data(), head.size())};
  SHARDCOMM_TRY_ASSIGN(File file, File::create(directory + "/" + name));
  SHARDCOMM_TRY(file.write(std::as_bytes(std::span(head))));
  for (const Source& source : sources) {
    std::vector<ManifestPiece>& pieces = report.pieces[source.tensor];
    size_t begin = 0;
    for (const SourceRun& run : source.runs) {
      SHARDCOMM_TRY_ASSIGN(const uint64_t checksum, write_run(file, run));
      pieces.push_back({.file = name, .offset = run.offset, .count = run.count, .checksum = checksum, .begin = begin});
      begin += run.count;
    }
  }
  SHARDCOMM_TRY(file.sync());
  return zero::report_to_text(report);
}

// Makes the directory, and says which generation of files comes next: a complete checkpoint of the same step stays
// valid until the new manifest replaces its own.
Result<uint64_t> prepare_directory(const std::string& path) {
  SHARDCOMM_TRY(zero::make_directories(path));
  const std::string manifest_path = fmt::format("{}/{}", path, zero::kManifestName);
  if (!zero::is_file(manifest_path)) {
    SHARDCOMM_TRY(zero::remove_other_generations(path, {}));
    return uint64_t{0};
  }
  SHARDCOMM_TRY_ASSIGN(const std::string text, zero::read_text(manifest_path, size_t{1} << 30));
  const auto manifest = zero::parse_manifest(text, manifest_path);
  return manifest.ok() ? manifest.value().generation + 1 : uint64_t{1};
}

// Everything the manifest says but the pieces.
Manifest outline_of(const ZeroEngine& engine, const AdamW* optimizer, const std::vector<NamedState>& states) {
  Manifest manifest;
  manifest.world_size = engine.communicator().size();
  manifest.adamw = optimizer != nullptr;
  manifest.optimizer_steps = optimizer == nullptr ? 0 : optimizer->steps();
  manifest.states = zero::names_of(states);
  for (const UnitSpec& unit : engine.units()) {
    for (uint32_t p = 0; p < unit.parameters.size(); ++p) {
      const ParameterSpec& spec = unit.parameters[p];
      const std::string name = zero::full_name(unit, p);
      if (!spec.tied_to.empty()) {
        const auto owner = manifest.tied.find(spec.tied_to);
        manifest.tied[name] = owner == manifest.tied.end() ? spec.tied_to : owner->second;
        continue;
      }
      manifest.tensors[name].shape = spec.shape;
      if (!spec.trainable) continue;
      for (const NamedState& state : states) {
        manifest.tensors[zero::state_tensor(name, state.name)].shape = spec.shape;
      }
    }
  }
  return manifest;
}

Status write_manifest(const std::string& directory, Manifest manifest, const std::vector<std::string>& reports) {
  for (const std::string& report : reports) SHARDCOMM_TRY(zero::add_report(report, manifest));
  SHARDCOMM_TRY_ASSIGN(const std::string text, zero::manifest_to_text(manifest));
  // What is about to be declared complete must be readable as such.
  const std::string path = fmt::format("{}/{}", directory, zero::kManifestName);
  if (const auto parsed = zero::parse_manifest(text, path); !parsed.ok()) {
    return Status(Code::kInternal,
                  fmt::format("the manifest does not describe a checkpoint: {}", parsed.status().message()));
  }
  SHARDCOMM_TRY(zero::sync_directory(directory));
  return zero::replace_text(path, text);
}

// Afterwards, by rank 0: none of it can harm the checkpoint that has been written.
void tidy(const std::string& dir, const std::string& written, const std::vector<std::string>& files, int keep) {
  Status tidied = zero::remove_other_generations(written, files);
  if (tidied.ok() && keep > 0) tidied = zero::prune_checkpoints(dir, written, static_cast<size_t>(keep));
  if (!tidied.ok()) log(Level::kWarn, "older checkpoints in {} could not be removed: {}", dir, tidied.to_string());
}

struct Preparation {
  std::string directory;
  std::string trainer_state;
  std::vector<NamedState> states;
  uint64_t generation = 0;
};

// Agreed by all ranks: the arguments, and what rank 0 found.
Result<Preparation> prepare(ZeroEngine& engine, const std::string& dir, uint64_t step, const SaveCheckpointArgs& args) {
  Communicator& comm = engine.communicator();
  Preparation prepared;
  prepared.directory = fmt::format("{}/{}", dir, zero::step_name(step));
  auto trainer_state = zero::compact_object(args.trainer_state);
  auto states = zero::all_states(engine, args.optimizer, args.states);
  Status mine = dir.empty() ? Status(Code::kInvalidArgument, "no directory was given") : trainer_state.status();
  if (mine.ok()) mine = states.status();
  // Not in the middle of an update, nor after a write that would be lost.
  if (mine.ok()) mine = engine.synchronize(zero::operation_deadline(comm));
  SHARDCOMM_TRY(zero::agree(comm, mine));
  prepared.trainer_state = std::move(trainer_state).value();
  prepared.states = std::move(states).value();
  SHARDCOMM_TRY(zero::agree_on_states(comm, args.optimizer, prepared.states));
  const std::vector<zero::Field> fields = {{"the step", step}, {"the path", hash_text(dir)}};
  SHARDCOMM_TRY(zero::agree_on(comm, fields, "arguments of save_checkpoint"));
  Result<uint64_t> generation = uint64_t{0};
  if (comm.rank() == 0) generation = prepare_directory(prepared.directory);
  SHARDCOMM_TRY(zero::agree(comm, generation.status()));
  prepared.generation = generation.value();
  const BroadcastArgs share{&prepared.generation, 1, DType::kU64, 0, "checkpoint"};
  SHARDCOMM_TRY(zero::finish(comm.broadcast(share, StreamRef::caller()), comm));
  return prepared;
}

Result<std::string> save(ZeroEngine& engine, const std::string& dir, uint64_t step, const SaveCheckpointArgs& args) {
  Communicator& comm = engine.communicator();
  SHARDCOMM_TRY_ASSIGN(const Preparation prepared, prepare(engine, dir, step, args));
  const auto file_of = [&](Rank rank) { return zero::shard_file_name(rank, comm.size(), prepared.generation); };
  const auto discard = [&] { static_cast<void>(zero::remove_file(prepared.directory + "/" + file_of(comm.rank()))); };

  auto report = write_shard(prepared.directory, file_of(comm.rank()), sources_of(engine, prepared.states));
  if (Status written = zero::agree(comm, report.status()); !written.ok()) {
    discard();
    return written;
  }
  SHARDCOMM_TRY_ASSIGN(const auto reports, zero::exchange_texts(comm, report.value()));
  Status completed;
  if (comm.rank() == 0) {
    Manifest manifest = outline_of(engine, args.optimizer, prepared.states);
    manifest.step = step;
    manifest.generation = prepared.generation;
    manifest.trainer_state = prepared.trainer_state;
    completed = write_manifest(prepared.directory, std::move(manifest), reports);
  }
  SHARDCOMM_TRY(zero::agree(comm, completed));
  if (comm.rank() == 0) {
    std::vector<std::string> files;
    for (Rank rank = 0; rank < comm.size(); ++rank) files.push_back(file_of(rank));
    tidy(dir, prepared.directory, files, args.keep);
  }
  return prepared.directory;
}

}  // namespace

Result<std::string> save_checkpoint(ZeroEngine& engine, const std::string& dir, uint64_t step,
                                    const SaveCheckpointArgs& args) {
  auto saved = save(engine, dir, step, args);
  if (!saved.ok()) return saved.status().context(fmt::format("saving checkpoint {} in {}", zero::step_name(step), dir));
  return saved;
}

Result<std::string> save_checkpoint(ZeroEngine& engine, AdamW& optimizer, const std::string& dir, uint64_t step,
                                    const std::string& trainer_state, int keep) {
  return save_checkpoint(engine, dir, step, {.optimizer = &optimizer, .trainer_state = trainer_state, .keep = keep});
}

}  // namespace shardcomm
