// Code generated from the documentation of the library by the test vocabulary. DO NOT EDIT.

package main

import permits "github.com/permits-rs/permits/bindings/go"

var names = []string{
	"weight",
	"timeout_ms",
	"holder",
	"label",
	"lane",
	"share",
	"lane_limit",
	"lane_floor",
	"lane_waiters",
	"lease_ms",
	"at_least_ms",
	"max_hold_ms",
	"supersede",
}

type options struct {
	Weight      *int     `json:"weight"`
	Timeout     *float64 `json:"timeout_ms"`
	Holder      *string  `json:"holder"`
	Label       *string  `json:"label"`
	Lane        *string  `json:"lane"`
	Share       *int     `json:"share"`
	LaneLimit   *int     `json:"lane_limit"`
	LaneFloor   *int     `json:"lane_floor"`
	LaneWaiters *int     `json:"lane_waiters"`
	Lease       *float64 `json:"lease_ms"`
	AtLeast     *float64 `json:"at_least_ms"`
	MaxHold     *float64 `json:"max_hold_ms"`
	Supersede   *string  `json:"supersede"`
}

func (o *options) all() (all []permits.Option) {
	all = with(all, o.Weight, permits.Weight)
	all = with(all, o.Timeout, milliseconds(permits.Timeout))
	all = with(all, o.Holder, permits.Holder)
	all = with(all, o.Label, permits.Label)
	all = with(all, o.Lane, permits.Lane)
	all = with(all, o.Share, permits.Share)
	all = with(all, o.LaneLimit, permits.LaneLimit)
	all = with(all, o.LaneFloor, permits.LaneFloor)
	all = with(all, o.LaneWaiters, permits.LaneWaiters)
	all = with(all, o.Lease, milliseconds(permits.Lease))
	all = with(all, o.AtLeast, milliseconds(permits.AtLeast))
	all = with(all, o.MaxHold, milliseconds(permits.MaxHold))
	all = with(all, o.Supersede, permits.Supersede)
	return all
}
