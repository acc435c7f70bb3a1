// Everything public in C++. The C ABI is shardcomm/c.h.
#pragma once
#include "shardcomm/bucket.h"
#include "shardcomm/checkpoint.h"
#include "shardcomm/communicator.h"
#include "shardcomm/flight.h"
#include "shardcomm/optimizer.h"
#include "shardcomm/pool.h"
#include "shardcomm/trace.h"
#include "shardcomm/zero.h"
