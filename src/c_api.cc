// The C ABI of communicators, windows, streams and collectives: each call is its C++ twin, arguments translated.
// Other subjects have files of their own, c_api_<subject>.cc.
#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <vector>

#include "c_api_support.h"

SHARDCOMM_GROWS(shardcomm_comm_params, options, options, "shardcomm_comm_params_init");

namespace shardcomm::c_api {
namespace {

// The streams that C callers own, by handle: StreamRef::native() is what a HostStream is known by.
class HostStreams {
 public:
  void adopt(void* handle, std::unique_ptr<HostStream> stream) {
    std::lock_guard lock(mutex_);
    streams_[handle] = std::move(stream);
  }
  void release(void* handle) {
    std::unique_ptr<HostStream> stream;  // drained when this scope ends, after the lock's
    std::lock_guard lock(mutex_);
    if (auto node = streams_.extract(handle)) stream = std::move(node.mapped());
  }

 private:
  std::mutex mutex_;
  std::map<void*, std::unique_ptr<HostStream>> streams_;
};

HostStreams& host_streams() {
  static HostStreams streams;
  return streams;
}

shardcomm_comm_params default_comm_params() {
  shardcomm_comm_params params{};
  params.struct_size = sizeof params;
  params.world_size = 1;
  return params;
}

}  // namespace

Result<StreamRef> to_stream(shardcomm_stream stream) {
  if (stream.kind == 0) return StreamRef::host(stream.handle);
  if (stream.kind == 1) return StreamRef::cuda(static_cast<CUstream_st*>(stream.handle), stream.device);
  return Status(Code::kInvalidArgument,
                "stream kind " + std::to_string(stream.kind) + " is neither 0 (host) nor 1 (cuda)");
}

}  // namespace shardcomm::c_api

using namespace shardcomm;
using namespace shardcomm::c_api;

uint32_t shardcomm_abi_version(void) { return SHARDCOMM_ABI_MAJOR << 16 | SHARDCOMM_ABI_MINOR; }
const char* shardcomm_version_string(void) { return SHARDCOMM_VERSION; }

// --- meeting ---

void shardcomm_comm_params_init_sized(shardcomm_comm_params* params, size_t struct_size) {
  init_sized(default_comm_params(), params, struct_size);
}

shardcomm_code shardcomm_comm_create(shardcomm_store* store, const shardcomm_comm_params* params,
                                     shardcomm_comm** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(store);
    SHARDCOMM_REQUIRE(params);
    SHARDCOMM_REQUIRE(out);
    SHARDCOMM_TRY_ASSIGN(const auto place, read_growing(params, default_comm_params(), "params"));
    if (place.device_kind != 0 && place.device_kind != 1)
      return Status(Code::kInvalidArgument, "params.device_kind is neither 0 (host) nor 1 (cuda)");
    SHARDCOMM_TRY_ASSIGN(const Options options, Options::parse(text(place.options)));
    const Device device{static_cast<Device::Kind>(place.device_kind), static_cast<int16_t>(place.device_index)};
    return deliver(Communicator::create(*store->store, {place.rank, place.world_size, device}, options), out);
  });
}

shardcomm_code shardcomm_comm_split(shardcomm_comm* comm, int32_t color, int32_t key, shardcomm_comm** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(comm);
    SHARDCOMM_REQUIRE(out);
    SHARDCOMM_TRY_ASSIGN(auto part, comm->comm.split(color, key));
    *out = part ? new shardcomm_comm{*std::move(part)} : nullptr;
    return {};
  });
}

int32_t shardcomm_comm_rank(const shardcomm_comm* comm) { return comm == nullptr ? -1 : comm->comm.rank(); }
int32_t shardcomm_comm_size(const shardcomm_comm* comm) { return comm == nullptr ? 0 : comm->comm.size(); }

shardcomm_code shardcomm_comm_set_timeout(shardcomm_comm* comm, int64_t timeout_ms) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(comm);
    return comm->comm.set_timeout(std::chrono::milliseconds(timeout_ms));
  });
}
shardcomm_code shardcomm_comm_health(const shardcomm_comm* comm) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(comm);
    return comm->comm.health();
  });
}
void shardcomm_comm_abort(shardcomm_comm* comm, const char* why) {
  if (comm != nullptr) comm->comm.abort(text(why));
}
void shardcomm_comm_destroy(shardcomm_comm* comm) { delete comm; }

// --- memory ---

shardcomm_code shardcomm_window_allocate(shardcomm_comm* comm, size_t bytes, const char* label,
                                         shardcomm_window** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(comm);
    SHARDCOMM_REQUIRE(out);
    return deliver(comm->comm.allocate_window(bytes, text(label)), out);
  });
}
shardcomm_code shardcomm_window_register(shardcomm_comm* comm, void* base, size_t bytes, const char* label,
                                         shardcomm_window** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(comm);
    SHARDCOMM_REQUIRE(out);
    return deliver(comm->comm.register_window(base, bytes, text(label)), out);
  });
}
void* shardcomm_window_data(const shardcomm_window* window) {
  return window == nullptr ? nullptr : window->window.data();
}
void shardcomm_window_destroy(shardcomm_window* window) { delete window; }

shardcomm_code shardcomm_mosaic_allocate(shardcomm_comm* comm, size_t shard_bytes, const char* label,
                                         shardcomm_mosaic** out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(comm);
    SHARDCOMM_REQUIRE(out);
    return deliver(comm->comm.allocate_mosaic(shard_bytes, text(label)), out);
  });
}
void* shardcomm_mosaic_shard(const shardcomm_mosaic* mosaic) {
  return mosaic == nullptr ? nullptr : mosaic->mosaic.shard();
}
const void* shardcomm_mosaic_all(const shardcomm_mosaic* mosaic) {
  return mosaic == nullptr ? nullptr : mosaic->mosaic.all();
}
size_t shardcomm_mosaic_granularity_bytes(void) { return MosaicWindow::granularity_bytes(); }
void shardcomm_mosaic_destroy(shardcomm_mosaic* mosaic) { delete mosaic; }

// --- order ---

shardcomm_code shardcomm_host_stream_create(const char* name, shardcomm_stream* out) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(out);
    SHARDCOMM_TRY_ASSIGN(HostStream stream, HostStream::create(name == nullptr ? "stream" : name));
    auto owner = std::make_unique<HostStream>(std::move(stream));
    void* handle = owner->ref().native();
    host_streams().adopt(handle, std::move(owner));
    *out = shardcomm_stream{0, 0, handle};
    return {};
  });
}
void shardcomm_host_stream_destroy(shardcomm_stream stream) {
  if (stream.kind == 0 && stream.handle != nullptr) host_streams().release(stream.handle);
}
shardcomm_code shardcomm_stream_synchronize(shardcomm_stream stream, int64_t timeout_ms) {
  return guarded([&]() -> Status {
    SHARDCOMM_TRY_ASSIGN(const StreamRef on, to_stream(stream));
    return on.synchronize(to_deadline(timeout_ms));
  });
}
shardcomm_code shardcomm_stream_wait(shardcomm_stream stream, const shardcomm_work* work) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(work);
    SHARDCOMM_TRY_ASSIGN(const StreamRef on, to_stream(stream));
    return on.wait(work->work);
  });
}

shardcomm_code shardcomm_work_done(const shardcomm_work* work, int32_t* done) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(work);
    SHARDCOMM_REQUIRE(done);
    *done = work->work.done() ? 1 : 0;
    return {};
  });
}
shardcomm_code shardcomm_work_synchronize(const shardcomm_work* work, int64_t timeout_ms) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(work);
    return work->work.synchronize(to_deadline(timeout_ms));
  });
}
shardcomm_code shardcomm_work_on_done(const shardcomm_work* work, shardcomm_work_fn fn, void* user) {
  return guarded([&]() -> Status {
    SHARDCOMM_REQUIRE(work);
    SHARDCOMM_REQUIRE(fn);
    return work->work.on_done([fn, user](const Status& status) {
      const std::string message(status.message());
      fn(user, static_cast<shardcomm_code>(status.code()), message.c_str());
    });
  });
}
void shardcomm_work_release(shardcomm_work* work) { delete work; }

// --- collectives ---

shardcomm_code shardcomm_all_gather(shardcomm_comm* comm, const void* shard, void* full, size_t count, int32_t dtype,
                                    shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) {
    return c.all_gather({shard, full, count, to_dtype(dtype)}, on);
  });
}
shardcomm_code shardcomm_reduce_scatter(shardcomm_comm* comm, const void* full, void* shard, size_t count,
                                        int32_t dtype, int32_t op, shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) {
    return c.reduce_scatter({full, shard, count, to_dtype(dtype), to_op(op)}, on);
  });
}
shardcomm_code shardcomm_all_reduce(shardcomm_comm* comm, const void* in, void* out, size_t count, int32_t dtype,
                                    int32_t op, shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) {
    return c.all_reduce({in, out, count, to_dtype(dtype), to_op(op)}, on);
  });
}
shardcomm_code shardcomm_broadcast(shardcomm_comm* comm, void* data, size_t count, int32_t dtype, int32_t root,
                                   shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) {
    return c.broadcast({data, count, to_dtype(dtype), root}, on);
  });
}
shardcomm_code shardcomm_all_to_all(shardcomm_comm* comm, const void* in, void* out, size_t count_per_rank,
                                    int32_t dtype, shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) {
    return c.all_to_all({in, out, count_per_rank, to_dtype(dtype)}, on);
  });
}
shardcomm_code shardcomm_barrier(shardcomm_comm* comm, shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) { return c.barrier(on); });
}
shardcomm_code shardcomm_all_gather_mosaic(shardcomm_comm* comm, const shardcomm_mosaic* mosaic,
                                           shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) -> Result<Work> {
    SHARDCOMM_REQUIRE(mosaic);
    return c.all_gather(mosaic->mosaic, on);
  });
}
shardcomm_code shardcomm_all_gather_v(shardcomm_comm* comm, const void* shard, void* full, const size_t* counts,
                                      int32_t dtype, shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) -> Result<Work> {
    SHARDCOMM_REQUIRE(counts);
    return c.all_gather_v({shard, full, {counts, static_cast<size_t>(c.size())}, to_dtype(dtype)}, on);
  });
}
shardcomm_code shardcomm_reduce_scatter_v(shardcomm_comm* comm, const void* full, void* shard, const size_t* counts,
                                          int32_t dtype, int32_t op, shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) -> Result<Work> {
    SHARDCOMM_REQUIRE(counts);
    return c.reduce_scatter_v({full, shard, {counts, static_cast<size_t>(c.size())}, to_dtype(dtype), to_op(op)}, on);
  });
}
shardcomm_code shardcomm_all_gather_many(shardcomm_comm* comm, const shardcomm_gather_item* items, size_t item_count,
                                         shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) -> Result<Work> {
    if (item_count != 0) SHARDCOMM_REQUIRE(items);
    std::vector<GatherItem> list;
    list.reserve(item_count);
    for (size_t i = 0; i < item_count; ++i)
      list.push_back({items[i].shard, items[i].full, items[i].count, to_dtype(items[i].dtype)});
    return c.all_gather_many(list, on);
  });
}
shardcomm_code shardcomm_reduce_scatter_many(shardcomm_comm* comm, const shardcomm_reduce_item* items,
                                             size_t item_count, shardcomm_stream stream, shardcomm_work** work) {
  return collective(comm, stream, work, [&](Communicator& c, StreamRef on) -> Result<Work> {
    if (item_count != 0) SHARDCOMM_REQUIRE(items);
    std::vector<ReduceItem> list;
    list.reserve(item_count);
    for (size_t i = 0; i < item_count; ++i) {
      list.push_back({items[i].full, items[i].shard, items[i].count, to_dtype(items[i].dtype), to_op(items[i].op)});
    }
    return c.reduce_scatter_many(list, on);
  });
}
