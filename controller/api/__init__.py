"""The REST interface of the service: `/api/v1`, JSON, bearer token, problem documents."""

from controller.api.app import create_api

__all__ = ["create_api"]
