// The door of src/memory: where bytes live. Each header is one subject:
//   segment.h     memory that processes of one node share without leaving a name anywhere
//   allocation.h  memory of any kind, as transports share it
//   mosaic.h      segments side by side
//   attach.h      the ordinary memory of a peer, read with cross-memory attach
//   available.h   how much memory there still is
//   block_map.h   a range of memory divided into blocks
//
// Cards are what a rank tells its peers: plain values without padding, to be sent as bytes. "Same node" is never
// assumed from names or numbers, which containers may share or hide: it is tested by finding the card's random token.
#pragma once
#include "memory/allocation.h"
#include "memory/attach.h"
#include "memory/available.h"
#include "memory/block_map.h"
#include "memory/mosaic.h"
#include "memory/segment.h"
