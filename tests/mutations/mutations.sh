# The mistakes that run.sh makes, and the tests that must see them. Read by it: mutation NAME BUILD FILE OLD NEW TEST…
# An OLD that is not in FILE any more is an error: the code has moved on, and so must its mutation.
# shellcheck shell=bash

wait=src/transport/mapped_wait.cc
control=src/transport/mapped_control.cc
ring=src/transport/staging_ring.cc
direct=src/collectives/direct.cc
copy=src/collectives/direct_copy.cc
reduce=src/collectives/direct_reduce.cc
sources=src/collectives/direct_source.h
source_table=src/collectives/source_table.cc
inline=src/collectives/inline.cc
staged=src/collectives/staged.cc
pairs=src/collectives/all_to_all_v.cc
shares=src/collectives/all_reduce_many.cc
turns=src/core/turnstile.h
order=src/core/call_order.h
mailbox=src/transport/mapped_mailbox.cc
transfers=src/messages/transfer_group.cc

# --- the order of memory: an x86 processor forgives these, ThreadSanitizer does not ---
mutation release_of_a_signal tsan $wait \
  'signal.value.store(value, std::memory_order_seq_cst);' \
  'signal.value.store(value, std::memory_order_relaxed);' \
  collectives_protocol_test
mutation acquire_of_a_signal tsan $wait \
  'signal.value.load(std::memory_order_acquire)' \
  'signal.value.load(std::memory_order_relaxed)' \
  collectives_protocol_test
mutation release_of_the_abort_text tsan $wait \
  'state.store(2, std::memory_order_seq_cst);' \
  'state.store(2, std::memory_order_relaxed);' \
  failure_abort_test:'*/threads'
mutation acquire_of_the_abort_text tsan $wait \
  'if (word.state.load(std::memory_order_acquire) != 2) return {};' \
  'if (word.state.load(std::memory_order_relaxed) != 2) return {};' \
  failure_abort_test:'*/threads'
mutation release_of_a_turn tsan $turns \
  'passed_.store(epoch, std::memory_order_seq_cst);' \
  'passed_.store(epoch, std::memory_order_relaxed);' \
  collectives_protocol_test
mutation release_of_a_place tsan $order \
  'if (!is_nested_) order_.word_.store(kFree, std::memory_order_release);' \
  'if (!is_nested_) order_.word_.store(kFree, std::memory_order_relaxed);' \
  call_order_test:'*EqualCalls*/threads'
mutation release_of_a_callback tsan src/device/work.cc \
  'compare_exchange_weak(waiting->next, waiting, std::memory_order_acq_rel)' \
  'compare_exchange_weak(waiting->next, waiting, std::memory_order_relaxed)' \
  on_done_test:'*Racing*'
mutation release_of_a_stream_task tsan src/device/host_queue.cc \
  'finished_count_.fetch_add(1, std::memory_order_release);' \
  'finished_count_.fetch_add(1, std::memory_order_relaxed);' \
  stream_test

mutation release_of_a_piece tsan src/device/host_team.cc \
  'ticket_.store(ticket, std::memory_order_release);' \
  'ticket_.store(ticket, std::memory_order_relaxed);' \
  host_team_test
mutation release_of_a_part tsan src/device/host_team.cc \
  'finished_.fetch_add(1, std::memory_order_acq_rel);' \
  'finished_.fetch_add(1, std::memory_order_relaxed);' \
  host_team_test

# --- the protocol ---
mutation last_await_readers release $direct \
  'return step.last ? await_readers(execution, step.geometry) : Status();' \
  'return {};' \
  collectives_stress_test:'*RanksMayBeFarApart*'
mutation last_await_readers_tsan tsan $direct \
  'return step.last ? await_readers(execution, step.geometry) : Status();' \
  'return {};' \
  collectives_protocol_test
mutation done_before_reading release $direct \
  'SHARDCOMM_TRY(move(execution, step, own));' \
  'fabric.control->finish_reading(); SHARDCOMM_TRY(move(execution, step, own));' \
  collectives_stress_test:'*RanksMayBeFarApart*' collectives_random_test
mutation message_slot_one_epoch_early release $control \
  ' & 1]' \
  ' & 0]' \
  collectives_stress_test:'*TinyOperations*'
mutation staging_slot_one_chunk_early release $ring \
  'number + 1 - kStagingSlots' \
  'number - kStagingSlots' \
  collectives_random_test:'*small_ring*'
mutation staged_chunk_not_awaited release $ring \
  'control_.wait(control_.block(owner).staged, number + 1, owner, limit)' \
  'control_.wait(control_.block(owner).staged, number, owner, limit)' \
  collectives_random_test:'*small_ring*'
mutation signature_not_compared release $control \
  'agreed = agreed && message.signature == announced_ &&' \
  'agreed = agreed && (message.signature == announced_ || setup_.rank >= 0) &&' \
  failure_mismatch_test
mutation label_not_in_the_signature release src/collectives/operation.cc \
  'if (!operation.label.empty()) {' \
  'if (operation.label.size() > 1000) {' \
  failure_mismatch_test

# --- waiting and failing ---
mutation sleepers_not_woken release $wait \
  '    futex_wake(bell(signal), kWakeAll);
    return;' \
  '    return;' \
  failure_idle_test:'*ASleeperIsWoken*'
mutation waiting_without_sleep release $wait \
  'std::min(deadline, next_look)' \
  'Clock::now()' \
  failure_idle_test:'*AnIdleWait*'
mutation abort_without_waking release $wait \
  '(void)try_record_abort(target->abort, reason);
  wake_all();' \
  '(void)try_record_abort(target->abort, reason);' \
  failure_abort_test:'*SleepersAreWoken*'
mutation deadline_not_looked_at release $wait \
  'if (Clock::now() >= deadline && signal' \
  'if (Clock::now() >= deadline + std::chrono::hours(1) && signal' \
  failure_late_test:'*BeyondTheDeadline*/processes'
mutation dead_peer_not_looked_for release $wait \
  'if (block(r).progress.departed.load(std::memory_order_acquire) == 0) return r;' \
  'if (block(r).progress.departed.load(std::memory_order_acquire) == 77) return r;' \
  failure_lost_test:'LostRank.EndsABarrierThatOthersSleepIn'
mutation departure_not_told release $control \
  'own().progress.departed.store(1, std::memory_order_release);' \
  'own().progress.departed.store(0, std::memory_order_release);' \
  failure_lost_test:'*LeftEarly*'
mutation spin_on_the_core_of_the_peer release $wait \
  'return core != 0 && core == core_of_this_thread();' \
  'return false && core == core_of_this_thread();' \
  failure_idle_test:'*ItsPeerNeeds*'
mutation failure_not_seen_by_who_waits release src/core/turnstile.cc \
  ' && control.failure().ok();' \
  ';' \
  failure_late_test:'*AsynchronousCalls*'
mutation calls_of_threads_not_in_order release $order \
  'return !word_.compare_exchange_strong(free, state, std::memory_order_acquire, std::memory_order_relaxed) &&' \
  'return false && !word_.compare_exchange_strong(free, state, std::memory_order_acquire, std::memory_order_relaxed) &&' \
  call_order_test:'*EqualCalls*'
mutation calls_between_the_steps_of_an_allocation release src/core/window.cc \
  'const auto reservation = core.reserve();' \
  '' \
  call_order_test:'*BetweenTheSteps*'
mutation callback_of_a_dropped_work_forgotten release src/core/host_executor.cc \
  'executor.setup_.health.abort(status);
    work->finish(status);' \
  'executor.setup_.health.abort(status);' \
  on_done_test:'*NeverRuns*'
mutation timeout_of_a_call_ignored release src/core/core.cc \
  'timeout = limited(timeout);
    return {};' \
  'timeout = this->timeout();
    return {};' \
  communicator_timeout_test
mutation turn_of_streams_not_kept release $turns \
  'if (passed() + 1 < epoch) SHARDCOMM_TRY(sleep(epoch, limit, control));' \
  '(void)limit, (void)control;' \
  collectives_stress_test:'*ManyStreams*'

# --- the bytes ---
mutation fingerprints_without_places release $source_table \
  'hash_.add(static_cast<uint64_t>(begin - window->base) << 1 | (in_place ? 1 : 0));' \
  'hash_.add(1);' \
  collectives_layout_test
mutation fingerprints_without_windows release $source_table \
  'hash_.add(window->id);' \
  'hash_.add(1);' \
  collectives_layout_test
mutation part_of_a_table_forgotten release src/kernels/table.h \
  'team->run(parts, [&](int i) {' \
  'team->run(parts, [&](int i) { if (segments.size() > 1 && i == 1) return;' \
  collectives_copy_threads_test
mutation shards_in_place_taken_for_apart release $source_table \
  'const bool in_place = gathers_ && item.in == own_.target(item);' \
  'const bool in_place = false && gathers_;' \
  collectives_layout_test
mutation counterpart_of_a_shard_in_place release $copy \
  'in_place ? target : item.in' \
  'in_place ? item.in : item.in' \
  collectives_layout_test
mutation sum_rounded_at_every_step release src/kernels/reduce_host.h \
  'sum.part[j] = Op::combine(sum.part[j], next.part[j]);' \
  'sum.part[j] = Op::combine(sum.part[j], next.part[j]);
    std::byte rounded[kBlockBytes];
    store_lanes(rounded, Block::pack(sum));
    sum = Block::load(rounded);' \
  kernels_test
mutation parts_of_a_reduction_begin_alike release src/kernels/reduce.cc \
  'reduce({segments.data(), args.source_count, skipped, part, large, args.scale});' \
  'reduce({segments.data(), args.source_count, 0 * skipped, part, large, args.scale});' \
  collectives_copy_threads_test
mutation tail_of_a_reduction release src/kernels/reduce_host.h \
  'if (pass.offset < end) run_rest' \
  'if (pass.offset + Block::kElementBytes < end) run_rest' \
  collectives_sample_test kernels_test
mutation tail_of_a_large_copy release src/kernels/copy_x86.cc \
  'std::memcpy(target + done, source + done, bytes - done);' \
  'std::memcpy(target + done, source + done, (bytes - done) / 16 * 16);' \
  kernels_test
mutation order_of_the_ranks release $reduce \
  'SHARDCOMM_TRY(reduce_run(execution_, run));' \
  'std::reverse(sources.begin(), sources.end()); SHARDCOMM_TRY(reduce_run(execution_, run));' \
  collectives_random_test:'*attached*'
mutation order_of_the_ranks_in_messages release $inline \
  'SHARDCOMM_TRY(reduce_run(execution, whole));' \
  'std::reverse(sources.begin(), sources.end()); SHARDCOMM_TRY(reduce_run(execution, whole));' \
  collectives_sample_test
mutation ragged_message_with_the_own_part release src/collectives/geometry.h \
  'same_for_all() ? 0 : route(source, source).length' \
  'same_for_all() || share_unit() == Unit::kElements ? 0 : route(source, source).length' \
  collectives_geometry_test
mutation parts_before_the_own_one_forgotten release src/collectives/geometry.h \
  'if (reader > source) route.source_offset' \
  'if (reader < source) route.source_offset' \
  collectives_geometry_test collectives_sample_test
mutation message_longer_than_announced release include/shardcomm/collective.h \
  'ranks < 2 ? 1 : ranks - 1;' \
  'ranks < 3 ? 1 : ranks - 2;' \
  collectives_sample_test collectives_matrix_test:'Processes/*'
mutation idle_rank_tells_nothing release src/core/communicator.cc \
  '(void)core.health.failure();' \
  '' \
  flight_command_test

mutation table_without_end release $reduce \
  'if (rows.is_full()) {' \
  'if (rows.is_full() && step_.items.empty()) {' \
  collectives_bits_test:'*Thousands*'

# --- roots, counts of each rank's own, whole tensors as shares ---
mutation readers_taken_for_sources release src/collectives/engine.cc \
  'if (geometry.reads(fabric.rank, peer)) SHARDCOMM_TRY' \
  'if (geometry.reads(peer, fabric.rank)) SHARDCOMM_TRY' \
  collectives_stress_test:'*RootsMayBeFarApart*'
mutation readers_taken_for_sources_tsan tsan src/collectives/engine.cc \
  'if (geometry.reads(fabric.rank, peer)) SHARDCOMM_TRY' \
  'if (geometry.reads(peer, fabric.rank)) SHARDCOMM_TRY' \
  collectives_protocol_test
mutation unread_slots_kept release $staged \
  'if (chunks != 0) fabric_.staging->release(r, chunks - 1);' \
  '' \
  collectives_random_test:'*small_ring*'
mutation chunks_counted_for_no_reader release $staged \
  'chunks_to(step, source, geometry.reader_of(source), part)' \
  'chunks_to(step, source, source, part)' \
  collectives_random_test:'*small_ring*'
mutation readers_of_pairs_not_awaited release $pairs \
  'return is_inline_ ? Status() : await_readers(execution_, step_.geometry);' \
  'return {};' \
  collectives_stress_test:'*RootsMayBeFarApart*'
mutation pairs_not_compared release $pairs \
  'return difference == 0 ? Status() : find_pair();' \
  'return {};' \
  failure_mismatch_test
mutation taken_again_where_it_lies release $pairs \
  'buffers_.rows[static_cast<size_t>(r)] = buffers_.no_offsets.data();' \
  '' \
  collectives_random_test:'Threads/*'
mutation root_of_many_not_in_the_signature release src/base/call.h \
  'call.dtype = static_cast<DType>(root & UINT8_MAX);' \
  'call.dtype = {};' \
  failure_mismatch_test
mutation share_not_where_it_is_cut release $shares \
  'part.out += begin_bytes;' \
  '' \
  collectives_program_test:'Threads/*'
mutation shares_reduced_by_their_givers release src/collectives/geometry.h \
  'pattern_ == Pattern::kReduce ? reader : source' \
  'pattern_ == Pattern::kReduce ? source : reader' \
  collectives_geometry_test

# --- calls that come again ---
mutation tables_of_windows_gone release $source_table \
  'tables->windows == fabric.windows->version()' \
  'tables->windows != 0' \
  collectives_prepared_calls_test:'*Windows*/processes'
mutation kept_copies_of_ranks_unlike release $copy \
  'from.matches ? kept_tables(step) : nullptr' \
  'kept_tables(step)' \
  collectives_prepared_calls_test:'*PeersThatHaveMoved*'
mutation kept_sums_of_ranks_unlike release $reduce \
  'reduction.all_match() ? kept_tables(step) : nullptr' \
  'kept_tables(step)' \
  collectives_prepared_calls_test:'*PeersThatHaveMoved*'

mutation closed_window_still_known release src/transport/windows.cc \
  '  version_.fetch_add(1, std::memory_order_release);
  std::erase_if' \
  '  std::erase_if' \
  collectives_prepared_calls_test:'*InThePlaceOfAWindow*'
mutation tables_of_one_announcement_of_several release $direct \
  'operation.items.size() > kMaxEntries' \
  'operation.items.size() > 1000000' \
  collectives_prepared_calls_test:'*SeveralAnnouncements*'
mutation tables_of_ordinary_memory_kept release $source_table \
  'if (table.fingerprint == 0) return;' \
  '' \
  collectives_prepared_calls_test:'*InOrdinaryMemory*'
mutation tables_never_found_again release $source_table \
  'tables->windows == fabric.windows->version()' \
  'tables->windows == fabric.windows->version() + 1' \
  collectives_prepared_calls_test:'*AllocateNothing*'
mutation part_of_a_segment_not_aligned release src/kernels/reduce_host.h \
  'if (pass.streaming) pass = with_aligned' \
  'if (pass.streaming && pass.offset == 0) pass = with_aligned' \
  kernels_test:'*Cut*'
mutation segment_of_nothing_looked_at release src/kernels/reduce_host.h \
  'if (count == 0) continue;' \
  '' \
  kernels_test:'*Cut*'

# --- whom ranks read first ---
mutation all_begin_with_the_same_source release src/planner/reading_order.cc \
  'place = domains[number].size();' \
  'place = 0;' \
  reading_order_test
mutation numa_nodes_around_all_cores release src/core/locality.cc \
  'HWLOC_TYPE_FILTER_KEEP_STRUCTURE' \
  'HWLOC_TYPE_FILTER_KEEP_NONE' \
  locality_test

# --- meeting ---
mutation any_secret_will_do release src/bootstrap/auth.cc \
  'CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0' \
  'CRYPTO_memcmp(a.data(), b.data(), a.size()) != 1000' \
  bootstrap_strangers_test
mutation another_version_is_welcome release src/core/discovery.cc \
  'if (protocols[r] == protocols[0]) continue;' \
  'if (!protocols[r].empty()) continue;' \
  communicator_skew_test
mutation any_token_will_do release src/memory/map_segment.cc \
  'trailer.segment != card.segment ||' \
  '' \
  segment_test

# --- ZeRO ---
hooks=src/zero/engine_hooks.cc
update=src/zero/engine_update.cc
mutation launch_ahead_of_its_stream release src/kernels/enqueue.h \
  'if (stream.is_caller()) {' \
  'if (stream.device().kind == Device::Kind::kHost) {' \
  elementwise_test:'*StreamOrder*'
mutation masters_not_rounded release $update \
  'SHARDCOMM_TRY(masters_->round(unit));' \
  '' \
  zero_optimizer_test
mutation new_values_not_published release $update \
  'if (!layout.stage.publishes()) return {};' \
  'return {};' \
  zero_optimizer_test
mutation gradients_zeroed_after_published_values release $update \
  'if (done.ok()) done = gradients_->synchronize(deadline);' \
  'if (done.ok()) done = stream_.ref().synchronize(deadline);' \
  zero_update_test:'*PublishDoesNotWait*'
mutation refused_update_keeps_values_from_peers release $update \
  'if (updating_) SHARDCOMM_TRY(give_unpublished_values());' \
  '' \
  zero_update_test:'*ARefusedRank*'
mutation moved_engine_is_lost release src/zero/engine.cc \
  'if (impl_ != nullptr) impl_->owner = this;
  return *this;' \
  'return *this;' \
  zero_update_test:'*IsMoved*'
mutation update_of_gradients_that_are_not_final release $update \
  'if (in_step_) {' \
  'if (in_step_ && updating_) {' \
  zero_update_test:'*RefusesCalls*'
mutation writes_before_a_step_unnoticed release $hooks \
  'if (!in_step_)' \
  'if (in_step_)' \
  zero_update_test:'*FindsWrites*'
mutation writes_to_views_unnoticed release $hooks \
  'left.ok() && !seals_.intact(id)' \
  'left.ok() && !seals_.intact(id) && updating_' \
  zero_update_test:'*FindsWritesToViews*'
mutation retired_memory_without_its_event release src/zero/gradients.cc \
  'pool_.release(part.borrowed, part.reduced);' \
  'pool_.release(part.borrowed, std::nullopt);' \
  zero_engine_test
mutation reductions_in_flight_in_the_middle release src/zero/schedule.cc \
  'const bool downwards = states_[unit].gradient_offset == 0;' \
  'const bool downwards = true;' \
  zero_transfers_test
mutation rest_of_a_unit_over_another release src/zero/gathered_units.cc \
  '(state.from_top ? 0 : state.bytes), missing_bytes(unit));' \
  '(state.from_top ? 0 : state.bytes), 1);' \
  zero_transfers_test
mutation padding_between_parts_of_a_tensor release src/planner/bucket_plan.cc \
  'const size_t unit = ranks_ * alignment(element_bytes);' \
  'const size_t unit = alignment(element_bytes);' \
  bucket_plan_test
mutation runs_of_a_file_all_read_at_its_begin release src/zero/checkpoint/reader.cc \
  '(piece->begin + skipped)' \
  'skipped' \
  zero_checkpoint_test

# --- the C ABI ---
mutation array_stepped_by_our_size release src/c_api_growth.h \
  'at += bytes;' \
  'at += sizeof(T);' \
  c_api_growth_test
mutation unknown_member_ignored release src/c_api_growth.h \
  'if (bytes > sizeof(T)) SHARDCOMM_TRY(growth::check_tail(given, sizeof(T), bytes, what));' \
  '' \
  c_api_growth_test
mutation init_of_our_size release src/c_api_growth.h \
  'std::memcpy(out, &defaults, std::min(bytes, sizeof(T)));' \
  'std::memcpy(out, &defaults, sizeof(T));' \
  c_api_growth_test
mutation older_struct_read_to_our_size release src/c_api_growth.h \
  'std::memcpy(&read, given, std::min(bytes, sizeof(T)));' \
  'std::memcpy(&read, given, sizeof(T));' \
  c_api_growth_test
mutation items_stepped_by_our_size release src/c_api_call.cc \
  'at += call.item_bytes' \
  'at += sizeof(shardcomm_item)' \
  c_api_call_test
mutation failed_get_told_to_nobody release src/bootstrap/exchange.cc \
  'if (published.status().code() != Code::kTimedOut) {' \
  'if (false) {' \
  c_api_store_test

# --- messages between two ranks ---
mutation message_published_before_it_is_written tsan $mailbox \
  'target.sequence.store(number, std::memory_order_seq_cst);' \
  'target.sequence.store(number, std::memory_order_relaxed);' \
  messages_order_test
mutation slot_reused_before_it_is_taken release $mailbox \
  'if (outbox.taken + kSlots < number) return false;' \
  '' \
  messages_order_test
mutation peer_that_waits_for_room_not_woken release $mailbox \
  'ring(peer);  // it may wait for room' \
  '' \
  messages_order_test:'*SleepersHearAtOnce*'
mutation tags_matched_in_the_order_of_arrival release src/messages/inbox.cc \
  'if (incoming->envelope.tag == receive.call.tag) {' \
  'if (incoming->envelope.tag >= 0) {' \
  messages_order_test
mutation newest_of_equal_tags_first release src/messages/inbox.cc \
  'waiting_.push_back(' \
  'waiting_.push_front(' \
  messages_order_test
mutation receive_that_overtakes_an_earlier_one release $transfers \
  'return state.after < 0 ||' \
  'return true || state.after < 0 ||' \
  messages_order_test
mutation memory_handed_back_before_it_is_read release $transfers \
  'if (answers < kRead) return {};' \
  'if (answers < kReady && state.is_staged) return {};' \
  messages_order_test
mutation shorter_message_accepted release $transfers \
  'if (envelope.dtype != receive.call.dtype || envelope.count != receive.call.count) {' \
  'if (envelope.dtype != receive.call.dtype) {' \
  messages_failure_test
mutation mail_not_emptied_while_waiting release $transfers \
  'messages_.inboxes_[index(peer)].drain();' \
  '(void)index(peer);' \
  messages_order_test
mutation subgroup_of_lists_that_differ release src/core/subgroup.cc \
  'if (lists[0] != mine) return differ(me, mine);' \
  '' \
  subgroup_test
mutation run_of_a_communicator_that_is_gone release src/core/prepared.cc \
  'if (core == nullptr)' \
  'if (core == nullptr && impl_->prepared == nullptr)' \
  collectives_prepared_calls_test:'*OutliveTheirCommunicator*'
mutation bucket_keeps_calls_of_another_communicator release src/core/bucket.cc \
  'if (!owner.owner_before(core) && !core.owner_before(owner)) return;' \
  'if (gather || reduction) return;' \
  window_test:'*BucketsAreUsedBy*'
mutation prepared_without_its_check release src/core/core.cc \
  'SHARDCOMM_TRY(check(prepared->operation, self.rank, self.size));' \
  '' \
  collectives_prepared_calls_test:'*RefuseWhatTheCallRefuses*'
mutation states_of_one_array release src/zero/checkpoint/states.cc \
  'states.push_back({"v", optimizer->second_moments()});' \
  'states.push_back({"v", optimizer->first_moments()});' \
  zero_checkpoint_test
mutation states_unasked_for_dropped_in_silence release src/zero/checkpoint/load.cc \
  'if (others.empty() || args.ignore_other_states) return {};' \
  'if (true) return {};' \
  zero_checkpoint_states_test

# --- memory pools ---
directory=src/transport/segment_directory.cc
blocks=src/memory/block_map.cc
pool=src/core/pool.cc
mutation generation_of_a_segment_ignored release $directory \
  'return mapped != nullptr && mapped->id == id ? mapped : nullptr;' \
  'return mapped;' \
  segment_directory_test
mutation generation_used_twice release $directory \
  'make_id(slot, next_generation_[slot]++)' \
  'make_id(slot, next_generation_[slot])' \
  segment_directory_test
mutation segment_published_before_its_entry_is_written release $directory \
  'free.address.store(reinterpret_cast<uint64_t>(segment.base), std::memory_order_release);' \
  '' \
  segment_directory_test
mutation segment_unmapped_under_a_reader release $directory \
  'readers_.load(std::memory_order_seq_cst) != 0' \
  'false' \
  segment_directory_test
mutation last_reader_unmaps_nothing release $directory \
  'has_dropped_.store(!dropped_.empty(), std::memory_order_seq_cst);' \
  '' \
  segment_directory_test
mutation withdrawn_segment_still_offered release $directory \
  'own.id.store(0, std::memory_order_release);' \
  '' \
  segment_directory_test
mutation reader_of_segments_not_counted release src/transport/windows.h \
  'if (reads_segments_) windows_.segments_->leave();' \
  '' \
  pool_test:'*SegmentsComeAndGo*'
mutation pool_tensors_taken_for_alike release $source_table \
  'window->has_counterparts() &&' \
  '' \
  pool_test:'*MayLieAlike*'
mutation trimmed_pages_not_freed release $pool \
  'old.segment.free_pages();' \
  '' \
  pool_processes_test:'*TrimFreesPages*'
mutation forked_child_takes_blocks release $pool \
  'if (birthplace.is_here()) [[likely]]' \
  'if (true)' \
  pool_test:'*ForkedChild*'
mutation pool_used_by_threads_without_a_lock tsan $pool \
  'const std::lock_guard lock(pool.mutex);
  const size_t bytes' \
  'const size_t bytes' \
  pool_test:'*SeveralThreads*threads'
mutation block_given_twice release $blocks \
  'if (found == blocks_.end() || found->second.is_free) return 0;' \
  'if (found == blocks_.end()) return 0;' \
  block_map_test
mutation free_neighbours_not_joined release $blocks \
  'if (block->before != nullptr && block->before->is_free) {' \
  'if (false) {' \
  block_map_test
mutation range_removed_with_taken_blocks release $blocks \
  'if (!block.is_free || block.before != nullptr || block.after != nullptr) return false;' \
  'if (!block.is_free) return false;' \
  block_map_test
mutation scale_of_a_share_forgotten release src/collectives/all_reduce.cc \
  'own_share, whole.count, whole.dtype, whole.op, whole.scale}' \
  'own_share, whole.count, whole.dtype, whole.op, 1}' \
  collectives_scale_test
mutation scales_not_compared release src/collectives/operation.cc \
  'operation.signature.detail ^= scales;' \
  '' \
  collectives_scale_test
mutation elements_cut_in_two release src/collectives/transfer_cursor.h \
  'kItemAlign = 16;  // the largest element' \
  'kItemAlign = 8;' \
  collectives_sample_test collectives_bits_test
mutation epochs_taken_without_the_lock tsan src/core/core.cc \
  'const CallOrder::Place place(call_order_);
  const Taken taken' \
  'const Taken taken' \
  communicator_threads_test
